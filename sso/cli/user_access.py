"""`flask user`, continued: passwords, sessions and second factors."""

from datetime import timedelta
from typing import Any

import click

from sso import audit, context
from sso.cli.commands import (
    Failure,
    ask_password,
    confirm,
    json_option,
    password_stdin_option,
    yes_option,
)
from sso.cli.output import iso, print_json, print_line, print_table
from sso.cli.people import done, find_user, group, user_argument
from sso.extensions import db
from sso.models import BrowserSession, Passkey, TotpSecret
from sso.process.program import COMMAND
from sso.services import accounts, credentials, identities
from sso.store import factors, sessions
from sso.store import identities as stored_identities
from sso.store.factors import Factors


@group.command("set-password")
@user_argument
@password_stdin_option
@json_option
def set_password(who: str, password_stdin: bool, as_json: bool) -> None:
    """Set a user's password; all sessions and tokens end."""
    user = find_user(who, exactly=True)
    credentials.set_password(audit.operator(), user, ask_password(password_stdin))
    db.session.commit()
    done(user, as_json, "the password is set", password_set=True)


@group.command("sessions")
@user_argument
@json_option
def list_sessions(who: str, as_json: bool) -> None:
    """List the browsers in which a user is signed in."""
    found = sessions.of_user(find_user(who).id)
    if as_json:
        print_json([_session(session) for session in found])
    else:
        print_table(
            ("SESSION", "SIGNED IN", "LAST SEEN", "ADDRESS", "BROWSER"),
            [(s.id, s.auth_time, s.last_seen_at, s.address, s.browser) for s in found],
        )


@group.command("factors")
@user_argument
@json_option
def list_factors(who: str, as_json: bool) -> None:
    """List a user's second factors."""
    found = factors.of_user(find_user(who).id)
    shown = _factors(found)
    if as_json:
        print_json({"factors": shown, "recovery_codes": found.recovery_codes})
        return
    print_table(("KIND", "NAME", "SINCE", "LAST USED"), [tuple(one.values()) for one in shown])
    print_line(f"Recovery codes left: {found.recovery_codes}")


@group.command("sign-out")
@user_argument
@json_option
def sign_out(who: str, as_json: bool) -> None:
    """Sign a user out everywhere; tokens with offline_access stay valid."""
    user = find_user(who, exactly=True)
    count = accounts.sign_out(audit.operator(), user)
    db.session.commit()
    done(user, as_json, f"{count} sessions ended", sessions_ended=count)


@group.command("reset-factors")
@user_argument
@json_option
def reset_factors(who: str, as_json: bool) -> None:
    """Remove all second factors of a user, and end all sessions."""
    user = find_user(who, exactly=True)
    removed = credentials.reset_factors(audit.operator(), user)
    db.session.commit()
    done(user, as_json, f"second factors removed: {removed}", factors_removed=removed)


@group.command("identities")
@user_argument
@json_option
def list_identities(who: str, as_json: bool) -> None:
    """List the accounts at identity providers that sign a user in."""
    found = [
        {
            "id": str(one.id),
            "provider": one.provider,
            "issuer": one.issuer,
            "subject": one.subject,
            "email": one.email,
            "since": iso(one.linked_at),
            "last_used_at": iso(one.last_used_at),
        }
        for one in stored_identities.of_user(find_user(who).id)
    ]
    if as_json:
        print_json(found)
    else:
        header = ("ID", "PROVIDER", "ISSUER", "SUBJECT", "EMAIL", "SINCE", "LAST USED")
        print_table(header, [tuple(one.values()) for one in found])


@group.command("unlink")
@user_argument
@click.argument("identity", metavar="IDENTITY")
@yes_option
@json_option
def unlink(who: str, identity: str, yes: bool, as_json: bool) -> None:
    """Remove an account at an identity provider; its sessions end.

    IDENTITY is its ID, or its provider if the user has only one there.
    """
    user = find_user(who, exactly=True)
    known = stored_identities.of_user(user.id)
    found = [one for one in known if identity in (str(one.id), one.provider)]
    if len(found) != 1:
        problem = "several accounts" if found else "no account"
        raise Failure(f"{user.email} has {problem} {identity}; see: {COMMAND} user identities")
    chosen_id, provider = found[0].id, found[0].provider
    warnings = identities.consequences(user, found[0])
    named = f"{found[0].email or found[0].subject} of {user.email}"
    confirm(" ".join([f"Remove {named}?", *warnings]), yes)
    identities.remove_identity(audit.operator(), user, chosen_id, warned=warnings)
    db.session.commit()
    words = f"the account at {provider} is removed"
    done(user, as_json, words, identity=str(chosen_id), provider=provider)


@group.command("enrolment-link")
@user_argument
@click.option(
    "--hours",
    type=click.IntRange(1, 168),
    default=1,
    show_default=True,
    help="How long the link is valid.",
)
@json_option
def enrolment_link(who: str, hours: int, as_json: bool) -> None:
    """Create a link that allows a user without mail to add the first second factor.

    It works once, together with the user's password. Give it to the user yourself: it replaces
    the mailed code.
    """
    user = find_user(who, exactly=True)
    token, link = credentials.make_enrolment_link(audit.operator(), user, timedelta(hours=hours))
    db.session.commit()
    if as_json:
        until = iso(token.expires_at)
        print_json({"id": str(user.id), "email": user.email, "link": link, "until": until})
    else:
        print_line(link)
    if context.settings().smtp_url is None:
        click.echo("SSO_SMTP_URL is not set: the password alone is enough here.", err=True)


def _session(session: BrowserSession) -> dict[str, Any]:
    """A sign-in; `sid` is what identity tokens call it."""
    return {
        "sid": str(session.id),
        "signed_in_at": iso(session.auth_time),
        "last_seen_at": iso(session.last_seen_at),
        "expires_at": iso(session.expires_at),
        "address": session.address,
        "browser": session.browser,
    }


def _factors(found: Factors) -> list[dict[str, Any]]:
    """A user's second factors; recovery codes only by number."""
    listed: list[tuple[str, Passkey | TotpSecret]] = [("passkey", one) for one in found.passkeys]
    if found.totp:
        listed.append(("totp", found.totp))
    return [
        {
            "kind": kind,
            "name": getattr(one, "name", None),
            "since": iso(one.created_at),
            "last_used_at": iso(one.last_used_at),
        }
        for kind, one in listed
    ]
