"""Credentials: change, reset or confirm an account's name, password, email and factors."""

from datetime import timedelta
from uuid import UUID

from sso import audit, clock, database
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import passwords
from sso.errors import OperatorError
from sso.extensions import db
from sso.i18n.message import Message
from sso.models import MailToken, User
from sso.process.program import COMMAND
from sso.services import changes as differences
from sso.services import checks, mail_links, notifications, revocation, roles
from sso.services.checks import Invalid
from sso.store import factors, sessions, users

ALL_FACTORS = "All second factors"  # the name in the mail about their removal


@audit.acting
def rename(actor: Actor, user: User, name: str) -> None:
    """Change the user's own name. Raises `Invalid`. The caller has locked the user."""
    if unfit := checks.text_error(checks.NAME, name):
        raise Invalid([unfit])
    if changes := differences.between({"name": user.name}, {"name": name}):
        user.name = name
        db.session.flush()
        audit.own_event(Event.NAME_CHANGED, user.id, changes=changes)


@audit.acting
def request_sign_up(actor: Actor, email: str) -> None:
    """Mail a link for a new account, or a notice if there is one; the result reveals neither."""
    notifications.sign_up_asked(email)
    audit.event(Event.SIGN_UP_ASKED)


@audit.acting
def request_password_reset(actor: Actor, email: str) -> None:
    """Mail a link to set a new password, if there is an account; the result does not reveal it."""
    notifications.reset_asked(email)
    audit.event(Event.RESET_ASKED)


@audit.acting
def mail_password_reset(actor: Actor, user: User) -> bool:
    """Mail a link to set a new password, as an operator; return False if too many were sent.

    Raises `NotAllowed`.
    """
    roles.require_may_help(actor, user)
    is_sent = notifications.reset_asked(user.email)
    audit.event(Event.RESET_ASKED, user=user.id)
    return is_sent


@audit.acting
def invite_again(actor: Actor, user: User) -> bool:
    """Mail the link to set the first password once more; return False if too many were sent.

    Raises `Invalid` and `NotAllowed`.
    """
    roles.require_may_help(actor, user)
    if user.password_hash is not None or user.is_disabled:
        raise Invalid([Message("%(email)s is disabled, or has a password", email=user.email)])
    is_sent = notifications.invited(user)
    audit.event(Event.USER_INVITED, user=user.id)
    return is_sent


@audit.acting
def set_password(actor: Actor, user: User, password: str) -> None:
    """Set a user's password, as an operator. Raises `Invalid` if it is weak, and `NotAllowed`."""
    roles.require_reach(actor, user)
    roles.require_may_change(actor, [user.groups])
    if weakness := passwords.weakness(password, (user.name, user.email)):
        raise Invalid([weakness])
    fresh = passwords.hash_password(password)
    _replace_password(user, fresh, Event.PASSWORD_SET, "password_changed")


@audit.acting
def take_over_password(actor: Actor, user: User, password_hash: str) -> None:
    """Set the hash of a password that was changed at another server; nobody is mailed.

    The caller has locked the user, and has admitted the method of the hash.
    """
    _replace_password(user, password_hash, Event.PASSWORD_SET, "password_changed", is_news=False)


@audit.acting
def change_password(actor: Actor, user: User, password_hash: str, keep: UUID) -> None:
    """Replace the user's own password, after the old one was verified in the session `keep`."""
    _replace_password(user, password_hash, Event.PASSWORD_CHANGED, "password_changed", keep)


@audit.acting
def reset_password(actor: Actor, user: User, password_hash: str, purpose: str) -> None:
    """Set the password after a mailed link, which also proves the email address.

    The caller has redeemed the link, which locks the user (`mail_links.redeem`).
    """
    is_reset = purpose == mail_links.RESET
    user.email_verified = True
    event = Event.PASSWORD_RESET if is_reset else Event.INVITATION_ACCEPTED
    is_news = is_reset or user.password_hash is not None
    _replace_password(user, password_hash, event, "password_reset", is_news=is_news)


def _replace_password(
    user: User,
    password_hash: str,
    event: Event,
    reason: str,
    keep: UUID | None = None,
    *,
    is_news: bool = True,
) -> None:
    """Set the password hash, end all other sessions and grants, notify, and record it."""
    user.password_hash = password_hash
    revocation.everything_of_user(user.id, reason, keep)
    if is_news:
        notifications.password_changed(user)
    audit.event(event, user=user.id)


@audit.acting
def request_email_change(actor: Actor, user: User, email: str) -> None:
    """Mail a link to the new address, which confirms it, and a warning to the old one."""
    notifications.email_change_asked(user, email)
    audit.event(Event.EMAIL_CHANGE_ASKED, user=user.id)


@audit.acting
def change_email(actor: Actor, user: User, email: str) -> None:
    """Set a proven email address and notify the old one. Raises `IntegrityError` if it is taken."""
    before, user.email = user.email, email
    db.session.flush()
    user.email_changed_at = clock.now()
    sessions.forbid_enrolment(user.id)
    notifications.email_changed(user, before)
    audit.event(Event.EMAIL_CHANGED, user=user.id)


@audit.acting
def request_verification(actor: Actor, user: User) -> bool:
    """Mail the link that verifies the address again; return False if too many were sent.

    Raises `NotAllowed`.
    """
    roles.require_may_help(actor, user)
    is_sent = notifications.verify(user)
    audit.event(Event.VERIFICATION_ASKED, user=user.id)
    return is_sent


@audit.acting
def verify_email(actor: Actor, user: User) -> None:
    """Mark the user's email address as verified."""
    user.email_verified = True
    db.session.flush()
    audit.event(Event.EMAIL_VERIFIED, user=user.id)


@audit.acting
def reset_factors(actor: Actor, user: User) -> int:
    """Remove all second factors and end all sessions; return the number of factors.

    Raises `NotAllowed`.
    """
    users.lock(user.id)  # nobody signs in with a factor, or adds another, meanwhile
    roles.require_may_help(actor, user)
    removed = factors.of_user(user.id).count
    revocation.sessions_of_user(user.id, "factors_reset")
    factors.remove_all(user.id)
    mail_links.end_before_factors(user)
    if removed:
        notifications.factor_removed(user, ALL_FACTORS)
    audit.event(Event.FACTORS_RESET, user=user.id, factors=removed)
    return removed


@audit.acting
def make_enrolment_link(actor: Actor, user: User, lives: timedelta) -> tuple[MailToken, str]:
    """Create a link that replaces the mailed code before the first factor; nobody is mailed.

    Raises `NotAllowed`, and `OperatorError` for a user who is disabled or has a factor.
    """
    roles.require_may_help(actor, user)
    if user.is_disabled:
        raise OperatorError(f"{user.email} is disabled; see: {COMMAND} user enable")
    users.lock(user.id)  # nobody adds a factor meanwhile
    if factors.has_any(database.session_connection(), user.id):
        raise OperatorError(f"{user.email} has a second factor; see: {COMMAND} user reset-factors")
    token, link = mail_links.make(mail_links.ENROLMENT, user.email, user, lives)
    until = token.expires_at.isoformat()
    audit.event(Event.ENROLMENT_LINK_MADE, user=user.id, until=until)
    return token, link
