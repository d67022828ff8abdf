"""Roles: administrators and the helpdesk, and the rules about them that all callers share."""

from collections.abc import Collection, Iterable
from uuid import UUID

from sso import audit, context
from sso.audit import Actor
from sso.errors import OperatorError
from sso.i18n import N_
from sso.models import User
from sso.process.program import COMMAND
from sso.store import users

ADMIN, HELPDESK = "admin", "helpdesk"
_OWN = N_("You cannot remove your own administrator rights. Ask another administrator.")
_LAST = N_("This is the last administrator who can sign in.")
_STAFF = N_("Only administrators can change administrators and members of the helpdesk.")
_PRIVILEGED = N_(
    "Administrators and the helpdesk, their groups and who is in them are changed only by a token "
    "with the scope scim:privileged."
)
_LIMITED = N_("Only administrators can do this.")


class NotAllowed(OperatorError):
    """The actor may not do this. `reason` is for pages, and translated where it is shown."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason + hint)
        self.reason = reason


def role_of(groups: Collection[str]) -> str | None:
    """Return the role that these groups give in the administration, if any."""
    settings = context.settings()
    if settings.admin_group in groups:
        return ADMIN
    return HELPDESK if settings.helpdesk_group in groups else None


def require_admin(actor: Actor) -> None:
    """Raise `NotAllowed` if the actor is a member of the helpdesk."""
    if actor.is_helpdesk:
        raise NotAllowed(_LIMITED)


def require_may_help(actor: Actor, user: User) -> None:
    """Raise `NotAllowed` if the helpdesk acts on an administrator or on the helpdesk."""
    if actor.is_helpdesk and role_of(user.groups):
        raise NotAllowed(_STAFF)


def require_may_change(actor: Actor, memberships: Iterable[Collection[str]]) -> None:
    """Raise `NotAllowed` if an API token without the scope changes administrators or helpdesk.

    `memberships`: the groups of each user concerned, before and after the change.
    """
    if not actor.changes_staff and any(role_of(groups) for groups in memberships):
        raise NotAllowed(_PRIVILEGED)


def keep_administrators(actor: Actor, leaving: Iterable[User]) -> None:
    """Raise `NotAllowed` unless another administrator who can sign in remains.

    `leaving`: the users who are about to lose the role or the account; the actor may not be one of
    them. The caller has written to the rows, so that on SQLite nobody else writes meanwhile.
    """
    administrators = [
        user for user in leaving if role_of(user.groups) == ADMIN and not user.is_disabled
    ]
    keep_others(actor, {user.id for user in administrators})


def keep_others(actor: Actor, ids: Collection[UUID]) -> None:
    """Raise `NotAllowed` like `keep_administrators`, for administrators with these ids."""
    if not ids:
        return
    if actor.user_id in ids or actor == audit.USER:
        raise NotAllowed(_OWN)
    group = context.settings().admin_group
    if not users.administrators_remain(group, ids):
        add = f" Make another one first: {COMMAND} user update WHO --add-group {group}"
        raise NotAllowed(_LAST, add)
