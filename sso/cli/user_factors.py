"""`flask user`, continued: second factors."""

from datetime import timedelta

import click

from sso import audit, context
from sso.audit.events import Event
from sso.cli import views
from sso.cli.commands import Failure, json_option
from sso.cli.output import iso, print_json, print_line, print_table
from sso.cli.people import done, find_user, group, user_argument
from sso.extensions import db
from sso.services import mail_links, notifications, revocation
from sso.store import factors, users

ALL = "All second factors"  # what the mail says was removed


@group.command("factors")
@user_argument
@json_option
def list_factors(who: str, as_json: bool) -> None:
    """List a person's second factors."""
    found = factors.of_user(find_user(who).id)
    shown = views.factors(found)
    if as_json:
        print_json({"factors": shown, "recovery_codes": found.recovery_codes})
        return
    print_table(("KIND", "NAME", "SINCE", "LAST USED"), [tuple(one.values()) for one in shown])
    print_line(f"Recovery codes left: {found.recovery_codes}")


@group.command("reset-factors")
@user_argument
@json_option
def reset_factors(who: str, as_json: bool) -> None:
    """Take all second factors away and end all sign-ins; the password alone signs in again."""
    user = find_user(who)
    users.lock(user.id)  # nobody signs in with what is taken away, or adds another meanwhile
    removed = factors.of_user(user.id).count
    revocation.sessions_of_user(
        user.id, "factors_reset"
    )  # locks the user, as each sign-in does first
    factors.remove_all(user.id)
    mail_links.end_before_factors(user)
    if removed:
        notifications.factor_removed(user, ALL)
    audit.event(Event.FACTORS_RESET, user=user.id, factors=removed)
    db.session.commit()
    done(user, as_json, f"second factors removed: {removed}", factors_removed=removed)


@group.command("enrolment-link")
@user_argument
@click.option(
    "--hours",
    type=click.IntRange(1, 168),
    default=1,
    show_default=True,
    help="How long the link works.",
)
@json_option
def enrolment_link(who: str, hours: int, as_json: bool) -> None:
    """Make a link that lets a person without access to mail set up the first second factor.

    It works once, together with their password. Hand it over yourself: it stands for the code that
    would be mailed.
    """
    user = find_user(who)
    if user.disabled_at is not None:
        raise Failure(f"{user.email} is disabled; see: flask user enable")
    users.lock(user.id)  # nobody adds a factor meanwhile
    if factors.has_any(user.id):
        raise Failure(f"{user.email} has a second factor; see: flask user reset-factors")
    token, link = mail_links.make(mail_links.ENROLMENT, user.email, user, timedelta(hours=hours))
    audit.event(Event.ENROLMENT_LINK_MADE, user=user.id, until=token.expires_at.isoformat())
    db.session.commit()
    if as_json:
        until = iso(token.expires_at)
        print_json({"id": str(user.id), "email": user.email, "link": link, "until": until})
    else:
        print_line(link)
    if context.settings().smtp_url is None:
        click.echo("SSO_SMTP_URL is not set: the password alone is enough here.", err=True)
