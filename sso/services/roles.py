"""Roles: administrators and the helpdesk, and the rules about them that all callers share."""

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from sso import audit, context
from sso.audit import Actor
from sso.config.client_fields import OF_MANAGERS
from sso.errors import NotAllowed
from sso.flow import permissions
from sso.flow.permissions import PEOPLE, Permission, Rights, lacking
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import Client, User
from sso.process.program import COMMAND
from sso.store import users

ADMIN, HELPDESK = permissions.ADMIN, permissions.HELPDESK
_OWN = N_("You cannot remove your own administrator rights. Ask another administrator.")
_LAST = N_("This is the last administrator who can sign in.")
_MORE = N_(
    "You can change only people and groups with no more permissions in the administration than "
    "you have."
)
_OUTSIDE = N_("You can manage only your groups and their members.")
_OTHER_APPLICATION = N_("You can manage only your applications.")
_OTHER_FIELDS = N_("Only those who manage all applications can change this: %(names)s")
_DISABLED_BY_OTHERS = N_(
    "Somebody with more permissions than you have disabled this. Ask an administrator to enable it."
)
_EMAIL_OF_DISABLED = N_(
    "Somebody with more permissions than you have disabled this account. Ask an administrator to "
    "delete it or to change its email."
)
_GROWING = N_(
    "You can add only people whom you manage already to a group whose members you manage."
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


def rights_of(groups: Collection[str]) -> Rights:
    """Return what membership in these groups gives in the administration."""
    role, custom, limits, applications = role_of(groups), _custom_roles(), _limits(), _clients()
    rights = Rights(permissions.ROLES[role] if role else frozenset())
    for group in groups:
        if group in limits:
            rights = rights.joined(Rights(limits=dict.fromkeys(custom[group], limits[group])))
        elif group in applications:
            bounds = dict.fromkeys(custom[group], applications[group])
            rights = rights.joined(Rights(applications=bounds))
        elif group in custom:
            rights = rights.joined(Rights(custom[group]))
    return rights


def _custom_roles() -> Mapping[str, frozenset[Permission]]:
    text = context.settings().admin_roles
    return permissions.custom_roles(text) if text else {}


def _limits() -> Mapping[str, frozenset[str]]:
    settings = context.settings()
    text, roles = settings.admin_role_groups, settings.admin_roles
    return permissions.role_limits(text, roles or "") if text else {}


def _clients() -> Mapping[str, frozenset[str]]:
    settings = context.settings()
    text, roles = settings.admin_role_applications, settings.admin_roles
    return permissions.role_applications(text, roles or "") if text else {}


def limiting_clients() -> set[str]:
    """Return the client IDs that roles of the operator are limited to."""
    return {client_id for ids in _clients().values() for client_id in ids}


def limits_people(group: str) -> bool:
    """Return whether a role of the operator manages, or sees, only the members of such groups."""
    custom = _custom_roles()
    return any(
        group in names and not custom[role].isdisjoint(PEOPLE) for role, names in _limits().items()
    )


def groups_without_owners() -> set[str]:
    """Return the names of the groups whose members only the administration decides about."""
    return groups_with_permissions().union(
        name for names in _limits().values() for name in names if limits_people(name)
    )


def groups_with_permissions() -> set[str]:
    """Return the names of the groups that give permissions in the administration."""
    settings = context.settings()
    return {settings.admin_group, settings.helpdesk_group, *_custom_roles()}


def require(actor: Actor, permission: Permission) -> None:
    """Raise `NotAllowed` if the actor lacks a permission, for a part of what a service does."""
    if not actor.may(permission):
        raise NotAllowed(lacking([permission]))


def require_reach_client(actor: Actor, client_id: str) -> None:
    """Raise `NotAllowed` unless what the service needs holds for this application."""
    if actor.permissions is not None and actor.rights.over_client(client_id).isdisjoint(
        actor.needs
    ):
        raise NotAllowed(_OTHER_APPLICATION)


def require_fields_of_managers(actor: Actor, names: Collection[str]) -> None:
    """Raise `NotAllowed` if only those who manage all applications may change such fields.

    The application would get more than it has, or less would be asked of its users.
    """
    if actor.permissions is None or actor.may(Permission.APPLICATIONS):
        return
    if others := sorted({*names} - OF_MANAGERS):
        raise NotAllowed(Message(_OTHER_FIELDS, names=", ".join(others)))


def require_reach(actor: Actor, user: User) -> None:
    """Raise `NotAllowed` unless what the service needs holds for this user."""
    if actor.permissions is not None and actor.rights.over(user.groups).isdisjoint(actor.needs):
        raise NotAllowed(_OUTSIDE)


def is_limited(actor: Actor) -> bool:
    """Return whether what the service needs holds for the actor only within limits."""
    return bool(actor.needs) and not any(map(actor.may, actor.needs))


def may_enable(actor: Actor, thing: User | Client) -> bool:
    """Return whether the actor, who manages this, may enable it: not if somebody without limits has
    disabled it, and the actor has limits.

    The end of an account is a field as others, which those who manage the person may change.
    """
    service = "accounts.enable" if isinstance(thing, User) else "clients.enable"
    has_no_limits = any(map(actor.may, permissions.SERVICES[service] or ()))
    if has_no_limits or thing.disabled_at is None or thing.disabled_within_limits:
        return True
    return isinstance(thing, User) and thing.is_only_ended


def why_not_enable(actor: Actor, thing: User | Client) -> str | None:
    """Return why the actor may not enable this (see `may_enable`); `None` if nothing forbids it."""
    return None if may_enable(actor, thing) else _DISABLED_BY_OTHERS


def require_may_enable(actor: Actor, thing: User | Client) -> None:
    """Raise `NotAllowed` unless the actor may enable this (see `may_enable`)."""
    if reason := why_not_enable(actor, thing):
        raise NotAllowed(reason)


def why_not_free_email(actor: Actor, user: User) -> str | None:
    """Return why the actor may not delete this user or change the email; `None` if nothing forbids
    it.

    A new account with the email would be enabled, and applications that know people by it would
    take it for the old one. So only those who may enable the user may free it.
    """
    return None if may_enable(actor, user) else _EMAIL_OF_DISABLED


def require_may_free_email(actor: Actor, user: User) -> None:
    """Raise `NotAllowed` unless the actor may delete this user and change the email."""
    if reason := why_not_free_email(actor, user):
        raise NotAllowed(reason)


def may_help(actor: Actor, user: User) -> bool:
    """Return whether the actor, whose permissions hold for this user, may act on someone with the
    user's permissions: not if these are more.

    Those who only help, such as the helpdesk, act on nobody who has any.
    """
    held = rights_of(user.groups)
    if actor.permissions is None or not held:
        return True
    return Permission.WRITE_PEOPLE in actor.rights.over(user.groups) and actor.rights.covers(held)


def require_may_help(actor: Actor, user: User) -> None:
    """Raise `NotAllowed` if the actor may not act on this user, also by limits of the actor."""
    require_reach(actor, user)
    require_no_more(actor, user)


def require_no_more(actor: Actor, user: User) -> None:
    """Raise `NotAllowed` if the user has more permissions than the actor (see `may_help`)."""
    if not may_help(actor, user):
        raise NotAllowed(_STAFF)


def require_may_place(
    actor: Actor, before: Collection[str], after: Collection[str], ends: Iterable[str] = ()
) -> None:
    """Raise `NotAllowed` if the actor may not change the groups of a user so, by limits.

    `ends`: the groups in which the end of the membership changes.
    """
    if not actor.may(Permission.WRITE_PEOPLE):
        _require_within(actor, Permission.WRITE_PEOPLE, {*before} ^ {*after} | {*ends})


def require_may_create(actor: Actor, groups: Collection[str]) -> None:
    """Raise `NotAllowed` unless the actor may create a user in these groups.

    The helpdesk invites people, but not into groups. Those with limits create people only in groups
    of theirs.
    """
    if actor.may(Permission.WRITE_PEOPLE):
        return
    if groups or actor.rights.permissions.isdisjoint(actor.needs):
        if Permission.WRITE_PEOPLE not in actor.limits:
            raise NotAllowed(lacking([Permission.WRITE_PEOPLE]))
        if not groups:
            raise NotAllowed(_OUTSIDE)
        _require_within(actor, Permission.WRITE_PEOPLE, groups)


def require_may_edit_group(actor: Actor, name: str, *, new_name: str | None) -> None:
    """Raise `NotAllowed` if the actor may not change a group, by limits.

    Nobody gives a group the name of one that bounds their rights: they would hold for its members.
    """
    if not actor.may(Permission.GROUPS):
        _require_within(actor, Permission.GROUPS, [name])
        if new_name is not None:
            raise NotAllowed(_OUTSIDE)
    if new_name is not None and any(new_name in names for names in actor.limits.values()):
        raise NotAllowed(_GROWING)


def require_may_join(actor: Actor, groups: Collection[str], name: str) -> None:
    """Raise `NotAllowed` if the actor may not add a user in these groups to another one, by limits.

    Otherwise people could be taken over by adding them to a group whose members one manages.
    """
    if actor.permissions is None or not actor.limits:
        return
    over = actor.rights.over(groups)
    if PEOPLE.intersection(actor.rights.over([*groups, name])) - over:
        raise NotAllowed(_GROWING)
    if not actor.may(Permission.GROUPS) and over.isdisjoint(PEOPLE):
        raise NotAllowed(_OUTSIDE)


def _require_within(actor: Actor, permission: Permission, groups: Iterable[str]) -> None:
    if not actor.limits.get(permission, frozenset()).issuperset(groups):
        raise NotAllowed(_OUTSIDE)


def require_may_change(actor: Actor, memberships: Iterable[Collection[str]]) -> None:
    """Raise `NotAllowed` if the actor gives or takes permissions that the actor lacks.

    API tokens without the scope give and take none. `memberships`: the groups of each user
    concerned, before and after the change.
    """
    if actor.changes_staff and actor.permissions is None:
        return
    for held in map(rights_of, memberships):
        if held and not actor.changes_staff:
            raise NotAllowed(_PRIVILEGED)
        if actor.permissions is not None and not actor.rights.covers(held):
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
