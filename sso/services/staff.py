"""Who administers in the browser, and what nobody may do there: the rules for every caller."""

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
    """Nobody may do this, or not this one. `reason` is for pages, translated where it is shown."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason + hint)
        self.reason = reason


def role_of(groups: Collection[str]) -> str | None:
    """What members of these groups may be in the administration."""
    settings = context.settings()
    if settings.admin_group in groups:
        return ADMIN
    return HELPDESK if settings.helpdesk_group in groups else None


def require_admin(actor: Actor) -> None:
    """The helpdesk may not do this. Raises `NotAllowed`."""
    if actor.is_helpdesk:
        raise NotAllowed(_LIMITED)


def require_may_help(actor: Actor, user: User) -> None:
    """The helpdesk may not touch those who administer. Raises `NotAllowed`."""
    if actor.is_helpdesk and role_of(user.groups):
        raise NotAllowed(_STAFF)


def require_may_change(actor: Actor, memberships: Iterable[Collection[str]]) -> None:
    """Refuse changes to administrators and the helpdesk by most API tokens. Raises `NotAllowed`.

    `memberships`: the groups of each user concerned, before and after the change.
    """
    if not actor.changes_staff and any(role_of(groups) for groups in memberships):
        raise NotAllowed(_PRIVILEGED)


def keep_administrators(actor: Actor, leaving: Iterable[User]) -> None:
    """These users are about to lose the administration, or their account. Raises `NotAllowed`.

    Somebody else has to remain who can sign in, and nobody removes themselves. The caller has
    written to the rows, so that on SQLite nobody else writes meanwhile.
    """
    going = [one for one in leaving if role_of(one.groups) == ADMIN and one.disabled_at is None]
    keep_others(actor, {one.id for one in going})


def keep_others(actor: Actor, ids: Collection[UUID]) -> None:
    """Do the same as `keep_administrators`, for administrators with these ids."""
    if not ids:
        return
    if actor.user_id in ids or actor == audit.USER:
        raise NotAllowed(_OWN)
    group = context.settings().admin_group
    if not users.administrators_remain(group, ids):
        add = f" Make another one first: {COMMAND} user update WHO --add-group {group}"
        raise NotAllowed(_LAST, add)
