"""Owners of groups: who they are, and how they change the members of their groups.

Owners have no other rights: they see neither other people nor other groups. A group that gives
permissions in the administration has none.
"""

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

from sqlalchemy import Select

from sso import audit
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import email_addresses
from sso.flow.permissions import Permission
from sso.i18n.message import Message
from sso.models import Group, User
from sso.services import accounts, group_editing, roles
from sso.services.checks import Invalid
from sso.store import groups as memberships
from sso.store import named_groups, users

MOST_OWNERS = 100  # of a group


def gives_permissions(name: str) -> bool:
    """Return whether the members of this group have permissions in the administration, or are whom
    somebody has permissions for.
    """
    return name in roles.groups_without_owners()


@audit.acting
def change(
    actor: Actor, group_id: UUID, *, added: Collection[UUID] = (), removed: Collection[UUID] = ()
) -> tuple[list[User], list[User]]:
    """Add and remove owners of a group; return those who are new, and those who are none any more.

    Raises `LookupError`, `Invalid` and `NotAllowed`.
    """
    group = named_groups.lock(group_id, {*added, *removed})
    if group is None:
        raise LookupError(group_id)
    roles.require_may_change(actor, [[group.name]])
    before = {user.id: user for user in named_groups.owners(group_id)}
    new = list(memberships.users(set(added) - before.keys()))
    former = [before[user_id] for user_id in set(removed) & before.keys()]
    _require_valid(group, set(added) - before.keys(), new, len(before) + len(new) - len(former))
    named_groups.add_owners(group_id, [user.id for user in new])
    named_groups.remove_owners(group_id, [user.id for user in former])
    for name, people in ((Event.GROUP_OWNER_ADDED, new), (Event.GROUP_OWNER_REMOVED, former)):
        for user in sorted(people, key=lambda user: user.email):
            audit.event(name, by=actor.by, user=user.id, group=group.id, name=group.name)
    return new, former


def _require_valid(group: Group, added: set[UUID], new: list[User], total: int) -> None:
    if new and gives_permissions(group.name):
        raise Invalid(
            [
                Message(
                    "the group %(name)s gives rights in the administration, so it has no owners",
                    name=group.name,
                )
            ]
        )
    if unknown := added - {user.id for user in new}:
        raise Invalid([Message("there is no user %(name)s", name=str(min(unknown)))])
    if new and total > MOST_OWNERS:
        raise Invalid([Message("a group has at most %(most)d owners", most=MOST_OWNERS)])


def find(actor: Actor, group_id: UUID) -> Group | None:
    """Return a group whose members the actor may see and change.

    One statement says so: another group takes no longer to refuse than one that does not exist.
    """
    statement = named_groups.with_id(group_id)
    if not actor.may(Permission.GROUPS):
        statement = managed_by(actor, statement)
    return named_groups.first_in(statement)


def may_manage(actor: Actor, group: Group) -> bool:
    """Return whether the actor may see and change the members of a group."""
    return is_staff_of(actor, group) or _is_owner(actor, group)


def is_staff_of(actor: Actor, group: Group) -> bool:
    """Return whether the actor manages a group by a permission, not as its owner."""
    return actor.may(Permission.GROUPS) or group.name in actor.limits.get(Permission.GROUPS, ())


def _is_owner(actor: Actor, group: Group) -> bool:
    return (
        actor.user_id is not None
        and not gives_permissions(group.name)
        and named_groups.is_owner(group.id, actor.user_id)
    )


def managed_by(actor: Actor, statement: Select[Group]) -> Select[Group]:
    """Narrow a selection of groups to those whose members a person may see and change."""
    return named_groups.managed(
        actor.user_id if actor.may(Permission.OWN_GROUPS) else None,
        statement,
        names=actor.limits.get(Permission.GROUPS, ()),
        except_of=roles.groups_without_owners(),
    )


@audit.acting
def add_member(actor: Actor, group_id: UUID, *, email: str, name: str) -> User:
    """Add a person to a group, who is invited if nobody has the email address.

    `name`: of a new person. Both cases have the same result, so that owners cannot ask who has an
    account without adding them. Raises `Invalid`, and `LookupError` if the actor may not.
    """
    trusted = _trusted(actor, _require_may_manage(actor, named_groups.find(group_id)))
    user = _find(email) or accounts.invite(trusted, email=email, name=name)[0]
    _lock(actor, group_id, user.id)
    group_editing.change(trusted, group_id, added=[user.id])
    return user


@audit.acting
def remove_member(actor: Actor, group_id: UUID, user_id: UUID) -> None:
    """Remove a member of a group. Raises `LookupError` if there is none, or the actor may not."""
    group = _lock(actor, group_id, user_id)
    if not any(group.name in member.groups for member in memberships.lock_users([user_id])):
        raise LookupError(user_id)
    group_editing.change(_trusted(actor, group), group_id, removed=[user_id])


def _trusted(actor: Actor, group: Group) -> Actor:
    """Return an actor who may change members of the group: its owner, for this call alone.

    Those who manage it by a permission need no trust, and their limits hold.
    """
    return actor if is_staff_of(actor, group) else replace(actor, permissions=None)


def _find(email: str) -> User | None:
    try:
        return users.find_by_email(email_addresses.normalized(email))
    except ValueError:
        return None  # `accounts.invite` says why


def _lock(actor: Actor, group_id: UUID, user_id: UUID) -> Group:
    """Lock the actor, the member and the group, so that the actor stays an owner until the end."""
    own = {actor.user_id} if actor.user_id else set()
    return _require_may_manage(actor, named_groups.lock(group_id, {user_id, *own}))


def _require_may_manage(actor: Actor, group: Group | None) -> Group:
    if group is None or not may_manage(actor, group):
        raise LookupError
    return group
