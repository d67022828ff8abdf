"""`flask user`: users, their passwords, sessions, second factors and identities.

`list` and `show` are in `cli.people`, which loads faster.
"""

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sso import audit, context
from sso.cli.attributes import edits_of
from sso.cli.clients import ListOption, with_options
from sso.cli.commands import (
    Failure,
    ask_password,
    confirm,
    json_option,
    named_texts,
    password_stdin_option,
    unknown,
    yes_option,
)
from sso.cli.output import (
    iso,
    print_changes,
    print_json,
    print_line,
    print_notes,
    print_record,
    print_table,
)
from sso.cli.people import brief, done, find_user, group, show_user, user_argument, whole
from sso.extensions import db
from sso.flow.profile_claims import CLAIMS, Format
from sso.models import BrowserSession, Passkey, TotpSecret
from sso.process import program
from sso.process.program import COMMAND
from sso.services import accounts, authentication, credentials, identities, pictures
from sso.services import groups as memberships
from sso.store import factors, keys, sessions
from sso.store import identities as stored_identities
from sso.store.factors import Factors

if TYPE_CHECKING:
    from sso.config import picture_files
    from sso.config.picture_files import Picture
else:
    picture_files = program.late_module("sso.config.picture_files")

_GROUPS = ListOption(
    "groups", "group", "groups", "GROUP", has_spaces=True, former=("--group", "--no-groups")
)
_email = click.option("--email", required=True)
_name = click.option("--name", required=True, help="The name that applications see.")
_groups = click.option("--group", "groups", multiple=True, help="A group. May be repeated.")
_ends_at = click.option(
    "--ends-at",
    metavar="TIME",
    help="When the account ends: 2027-01-31T18:00+01:00; without an offset, it is UTC.",
)
_group_ends = click.option(
    "--group-end",
    "group_ends",
    multiple=True,
    metavar="GROUP=TIME",
    callback=lambda _ctx, _option, texts: _ends_of(texts),
    help="When a membership ends, as --ends-at; without a time, its end is removed. May be "
    "repeated.",
)
_claims = click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _ctx, _option, texts: _parsed(texts),
    help="A standard claim such as given_name or locale; address as JSON. May be repeated.",
)
_attributes = click.option(
    "--set-attribute",
    "attributes",
    multiple=True,
    metavar="NAME=VALUE",
    help="The value of an attribute; of a list, texts with commas between them. May be repeated.",
)


@group.command("create")
@_email
@_name
@password_stdin_option
@click.option("--email-verified", is_flag=True, help="The address belongs to the user.")
@click.option("--admin", is_flag=True, help="May administer the server in the browser.")
@_groups
@_claims
@_attributes
@_group_ends
@_ends_at
@json_option
def create(as_json: bool, password_stdin: bool, admin: bool, **fields: Any) -> None:
    """Create a user; asks for the password."""
    if admin:
        fields["groups"] = [*fields["groups"], context.settings().admin_group]
    fields["attributes"] = edits_of(fields["attributes"])
    user = accounts.create(audit.operator(), password=ask_password(password_stdin), **fields)
    db.session.commit()
    print_notes(memberships.not_known(user.groups, user))
    if as_json:
        print_json(brief(user))
    else:
        print_record(brief(user).items())


@group.command("invite")
@_email
@_name
@_groups
@json_option
def invite(as_json: bool, **fields: Any) -> None:
    """Create a user, and mail a link to set the password."""
    user, is_sent = accounts.invite(audit.operator(), **fields)
    db.session.commit()
    left_out = [] if is_sent else [f"No mail is sent to {user.email}: too many, or none arrives."]
    print_notes([*memberships.not_known(user.groups, user), *left_out])
    if as_json:
        print_json(brief(user))
    else:
        sends = f"; {COMMAND} worker sends the mail" if is_sent else ""
        print_line(f"{user.email} ({user.id}): invited{sends}.")


@group.command("update")
@user_argument
@click.option("--email", help="The new address is unverified unless --email-verified is given.")
@click.option("--name")
@click.option("--email-verified/--no-email-verified", default=None)
@with_options(_GROUPS)
@_claims
@_attributes
@_group_ends
@_ends_at
@click.option("--no-ends-at", is_flag=True, help="Remove the end of the account.")
@json_option
def update(identifier: str, as_json: bool, no_ends_at: bool, **options: Any) -> None:
    """Change a user, and print what changed; an empty claim or attribute is removed."""
    if no_ends_at:
        if options["ends_at"] is not None:
            raise click.UsageError("--ends-at contradicts --no-ends-at.")
        options["ends_at"] = ""
    options["memberships"] = _GROUPS.edit(options)
    options["attributes"] = edits_of(options["attributes"])
    changes = {name: value for name, value in options.items() if value not in (None, {})}
    if not changes:
        raise click.UsageError("There is nothing to change: give an option.")
    try:
        user, outcome = accounts.update(
            audit.operator(), find_user(identifier, exactly=True).id, **changes
        )
    except LookupError:  # deleted at this moment
        raise unknown("user", identifier) from None
    db.session.commit()
    if as_json:
        print_json({**whole(user), "changes": outcome.changes})
    else:
        show_user(user, as_json)
    added = outcome.changes.get("groups", {}).get("added", [])
    print_changes(outcome.changes, [*outcome.notes, *memberships.not_known(added, user)], as_json)


@group.command("disable")
@user_argument
@json_option
def disable(identifier: str, as_json: bool) -> None:
    """Disable a user; all their sessions, tokens and API tokens end at once."""
    user = find_user(identifier, exactly=True)
    accounts.disable(audit.operator(), user)
    db.session.commit()
    show_user(user, as_json)


@group.command("enable")
@user_argument
@json_option
def enable(identifier: str, as_json: bool) -> None:
    """Enable a user again; ended sessions stay ended."""
    user = find_user(identifier, exactly=True)
    accounts.enable(audit.operator(), user)
    db.session.commit()
    show_user(user, as_json)


@group.command("delete")
@user_argument
@yes_option
@json_option
def delete(identifier: str, yes: bool, as_json: bool) -> None:
    """Delete a user with sessions, tokens, consents and API tokens."""
    user = find_user(identifier, exactly=True)
    names = ", ".join(token.name for token in keys.of_owner(user.id))
    confirm(
        f"Delete {user.email} ({user.id})"
        f"{f', and revoke the API tokens {names}' if names else ''}?",
        yes,
    )
    accounts.delete(audit.operator(), user)
    db.session.commit()
    done(user, as_json, "deleted", deleted=True)


def _ends_of(texts: Iterable[str]) -> dict[str, str] | None:
    """Parse GROUP=TIME; the name of a group may have the sign, too."""
    ends = {}
    for text in texts:
        name, separator, time = text.rpartition("=")
        if not separator:
            raise click.UsageError(f"{text!r} is not GROUP=TIME.")
        ends[name] = time
    return ends or None


def _parsed(texts: Iterable[str]) -> dict[str, Any]:
    """Parse NAME=VALUE; the claim is `None` if the value is empty."""
    values = named_texts(texts, "claim")
    return {name: _typed(name, value) if value else None for name, value in values.items()}


def _typed(name: str, value: str) -> Any:
    kind = CLAIMS[name].format if name in CLAIMS else None
    if kind is Format.ADDRESS:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value  # `checks` says that it is no JSON object
    if kind is Format.SWITCH:
        return {"true": True, "false": False}.get(value, value)
    return value


@group.command("set-password")
@user_argument
@password_stdin_option
@json_option
def set_password(identifier: str, password_stdin: bool, as_json: bool) -> None:
    """Set a user's password; all sessions and tokens end."""
    user = find_user(identifier, exactly=True)
    credentials.set_password(audit.operator(), user, ask_password(password_stdin))
    db.session.commit()
    done(user, as_json, "the password is set", password_set=True)


@group.command("set-picture")
@user_argument
@click.argument(
    "file", metavar="[FILE]", type=click.Path(path_type=Path, dir_okay=False), required=False
)
@click.option("--remove", is_flag=True, help="Remove the uploaded picture.")
@json_option
def set_picture(identifier: str, file: Path | None, remove: bool, as_json: bool) -> None:
    """Give a user the picture in FILE (PNG, JPEG or WebP), or remove it."""
    if (file is None) != remove:
        raise click.UsageError("Give a FILE or --remove.")
    picture = _picture(file) if file else None
    try:
        user = pictures.change(audit.operator(), find_user(identifier, exactly=True).id, picture)
    except LookupError:  # deleted at this moment
        raise unknown("user", identifier) from None
    db.session.commit()
    url = user.claims.get("picture")
    done(user, as_json, f"the picture is at {url}" if file else "no uploaded picture", picture=url)


def _picture(file: Path) -> "Picture":
    try:
        with file.open("rb") as opened:
            return picture_files.read(opened.read(picture_files.MAX_BYTES + 1))
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Failure(f"{file} is refused: {error.args[0]}") from None


@group.command("sessions")
@user_argument
@json_option
def list_sessions(identifier: str, as_json: bool) -> None:
    """List the browsers in which a user is signed in."""
    rows = sessions.of_user(find_user(identifier).id)
    if as_json:
        print_json([_session(session) for session in rows])
    else:
        print_table(
            ("SESSION", "SIGNED IN", "LAST SEEN", "ADDRESS", "BROWSER"),
            [(s.id, s.auth_time, s.last_seen_at, s.address, s.browser) for s in rows],
        )


@group.command("factors")
@user_argument
@json_option
def list_factors(identifier: str, as_json: bool) -> None:
    """List a user's second factors."""
    user_factors = factors.of_user(find_user(identifier).id)
    entries = _factors(user_factors)
    if as_json:
        print_json({"factors": entries, "recovery_codes": user_factors.recovery_codes})
        return
    print_table(
        ("KIND", "NAME", "SINCE", "LAST USED"), [tuple(entry.values()) for entry in entries]
    )
    print_line(f"Recovery codes left: {user_factors.recovery_codes}")


@group.command("sign-out")
@user_argument
@json_option
def sign_out(identifier: str, as_json: bool) -> None:
    """Sign a user out everywhere; tokens with offline_access stay valid."""
    user = find_user(identifier, exactly=True)
    count = authentication.sign_out(audit.operator(), user)
    db.session.commit()
    done(user, as_json, f"{count} sessions ended", sessions_ended=count)


@group.command("reset-factors")
@user_argument
@json_option
def reset_factors(identifier: str, as_json: bool) -> None:
    """Remove all second factors of a user, and end all sessions."""
    user = find_user(identifier, exactly=True)
    removed = credentials.reset_factors(audit.operator(), user)
    db.session.commit()
    done(user, as_json, f"second factors removed: {removed}", factors_removed=removed)


@group.command("identities")
@user_argument
@json_option
def list_identities(identifier: str, as_json: bool) -> None:
    """List the accounts at identity providers that sign a user in."""
    entries = [
        {
            "id": str(row.id),
            "provider": row.provider,
            "issuer": row.issuer,
            "subject": row.subject,
            "email": row.email,
            "since": iso(row.linked_at),
            "last_used_at": iso(row.last_used_at),
        }
        for row in stored_identities.of_user(find_user(identifier).id)
    ]
    if as_json:
        print_json(entries)
    else:
        header = ("ID", "PROVIDER", "ISSUER", "SUBJECT", "EMAIL", "SINCE", "LAST USED")
        print_table(header, [tuple(entry.values()) for entry in entries])


@group.command("unlink")
@user_argument
@click.argument("identity", metavar="IDENTITY")
@yes_option
@json_option
def unlink(identifier: str, identity: str, yes: bool, as_json: bool) -> None:
    """Remove an account at an identity provider; its sessions end.

    IDENTITY is its ID, or its provider if the user has only one there.
    """
    user = find_user(identifier, exactly=True)
    user_identities = stored_identities.of_user(user.id)
    matches = [row for row in user_identities if identity in (str(row.id), row.provider)]
    if len(matches) != 1:
        problem = "several accounts" if matches else "no account"
        raise Failure(f"{user.email} has {problem} {identity}; see: {COMMAND} user identities")
    identity_id, provider = matches[0].id, matches[0].provider
    warnings = identities.consequences(user, matches[0])
    description = f"{matches[0].email or matches[0].subject} of {user.email}"
    confirm(" ".join([f"Remove {description}?", *warnings]), yes)
    identities.remove_identity(audit.operator(), user, identity_id, warned=warnings)
    db.session.commit()
    sentence = f"the account at {provider} is removed"
    done(user, as_json, sentence, identity=str(identity_id), provider=provider)


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
def enrolment_link(identifier: str, hours: int, as_json: bool) -> None:
    """Create a link that allows a user without mail to add the first second factor.

    It works once, together with the user's password. Give it to the user yourself: it replaces
    the mailed code.
    """
    user = find_user(identifier, exactly=True)
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
    """Return the fields of a session to show, with its `sid` in identity tokens."""
    return {
        "sid": str(session.id),
        "signed_in_at": iso(session.auth_time),
        "last_seen_at": iso(session.last_seen_at),
        "expires_at": iso(session.expires_at),
        "address": session.address,
        "browser": session.browser,
    }


def _factors(user_factors: Factors) -> list[dict[str, Any]]:
    """Return the fields of passkeys and authenticator apps to show."""
    rows: list[tuple[str, Passkey | TotpSecret]] = [
        ("passkey", row) for row in user_factors.passkeys
    ]
    if user_factors.totp:
        rows.append(("totp", user_factors.totp))
    return [
        {
            "kind": kind,
            "name": getattr(row, "name", None),
            "since": iso(row.created_at),
            "last_used_at": iso(row.last_used_at),
        }
        for kind, row in rows
    ]
