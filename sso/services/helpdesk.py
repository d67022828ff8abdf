"""Helpdesk: what its members may do, too, for people who do not administer."""

from sso import audit
from sso.audit import Actor
from sso.audit.events import Event
from sso.i18n.message import Message
from sso.models import User
from sso.services import notifications, revocation, staff
from sso.services.checks import Invalid


@audit.acting
def sign_out(actor: Actor, user: User) -> int:
    """End all sessions of a user; returns how many. Raises `NotAllowed`."""
    staff.require_may_help(actor, user)
    return revocation.sessions_of_user(user.id, "operator")


@audit.acting
def invite_again(actor: Actor, user: User) -> bool:
    """Mail the link to set the first password once more; whether it is sent.

    Raises `Invalid` and `NotAllowed`.
    """
    staff.require_may_help(actor, user)
    if user.password_hash is not None or user.disabled_at is not None:
        raise Invalid([Message("%(email)s is disabled, or has a password", email=user.email)])
    is_sent = notifications.invited(user)
    audit.event(Event.USER_INVITED, user=user.id)
    return is_sent


@audit.acting
def mail_password_reset(actor: Actor, user: User) -> bool:
    """Mail a link to set a new password; whether it is sent. Raises `NotAllowed`."""
    staff.require_may_help(actor, user)
    is_sent = notifications.reset_asked(user.email)
    audit.event(Event.RESET_ASKED, user=user.id)
    return is_sent
