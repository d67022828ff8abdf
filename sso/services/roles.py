"""Roles: administrators and the helpdesk, and the rules about them that all callers share."""

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from sso import audit, context
from sso.audit import Actor
from sso.errors import NotAllowed
from sso.flow import permissions
from sso.flow.permissions import LIMITED, Permission
from sso.i18n import N_
from sso.models import User
from sso.process.program import COMMAND
from sso.store import users

ADMIN, HELPDESK = permissions.ADMIN, permissions.HELPDESK
_OWN = N_("You cannot remove your own administrator rights. Ask another administrator.")
_LAST = N_("This is the last administrator who can sign in.")
_MORE = N_(
    "You can change only people and groups with no more permissions in the administration than "
    "you have."
)
_STAFF = N_("Only administrators can change administrators and members of the helpdesk.")
_PRIVILEGED = N_(
    "Administrators and the helpdesk, their groups and who is in them are changed only by a token "
    "with the scope scim:privileged."
)


def role_of(groups: Collection[str]) -> str | None:
    """Return the role that these groups give in the administration, if any."""
    settings = context.settings()
    if settings.admin_group in groups:
        return ADMIN
    return HELPDESK if settings.helpdesk_group in groups else None


def permissions_of(groups: Collection[str]) -> frozenset[Permission]:
    """Return the permissions that membership in these groups gives in the administration."""
    role, custom = role_of(groups), _custom_roles()
    held = permissions.ROLES[role] if role else frozenset()
    return held.union(*(custom[group] for group in groups if group in custom))


def _custom_roles() -> Mapping[str, frozenset[Permission]]:
    text = context.settings().admin_roles
    return permissions.custom_roles(text) if text else {}


def groups_with_permissions() -> set[str]:
    """Return the names of the groups that give permissions in the administration."""
    settings = context.settings()
    return {settings.admin_group, settings.helpdesk_group, *_custom_roles()}


def require(actor: Actor, permission: Permission) -> None:
    """Raise `NotAllowed` if the actor lacks a permission, for a part of what a service does."""
    if not actor.may(permission):
        raise NotAllowed(LIMITED)


def may_help(actor: Actor, user: User) -> bool:
    """Return whether the actor may act on this user, who has no more permissions.

    Those who only help, such as the helpdesk, act on nobody who has any.
    """
    held = permissions_of(user.groups)
    if actor.permissions is None or not held:
        return True
    return actor.may(Permission.WRITE_PEOPLE) and held <= actor.permissions


def require_may_help(actor: Actor, user: User) -> None:
    """Raise `NotAllowed` if the actor may not act on this user (see `may_help`)."""
    if not may_help(actor, user):
        raise NotAllowed(_STAFF)


def require_may_change(actor: Actor, memberships: Iterable[Collection[str]]) -> None:
    """Raise `NotAllowed` if the actor gives or takes permissions that the actor lacks.

    API tokens without the scope give and take none. `memberships`: the groups of each user
    concerned, before and after the change.
    """
    if actor.changes_staff and actor.permissions is None:
        return
    for held in map(permissions_of, memberships):
        if held and not actor.changes_staff:
            raise NotAllowed(_PRIVILEGED)
        if actor.permissions is not None and not held <= actor.permissions:
            raise NotAllowed(_MORE)


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
