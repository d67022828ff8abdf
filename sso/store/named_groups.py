"""Statements about the groups themselves; `groups` has those about their members."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import Select, delete, select, update

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import Api, Group, GroupOwner, User
from sso.store import apis, clients, groups, users
from sso.store.lists import Order, batches, write

BY_NAME = Order((Group.name,))


def containing(text: str) -> Select[Group]:
    """Select the groups with this text in their name, to be ordered by `BY_NAME`."""
    statement = select(Group)
    return statement.where(Group.name.icontains(text, autoescape=True)) if text else statement


def managed(
    owner: UUID | None,
    statement: Select[Group],
    *,
    names: Collection[str],
    except_of: Collection[str],
) -> Select[Group]:
    """Narrow a selection of groups to those with these names, and those that a user owns, of which
    some are excepted.
    """
    owned = select(GroupOwner.group_id).where(GroupOwner.user_id == owner)
    return statement.where(
        Group.name.in_(names) | (Group.id.in_(owned) & Group.name.not_in(except_of))
    )


def names_owned_by(user_id: UUID) -> Sequence[str]:
    """Return the names of the groups that a user owns."""
    statement = select(Group.name).join(GroupOwner, GroupOwner.group_id == Group.id)
    owned = statement.where(GroupOwner.user_id == user_id).order_by(Group.name)
    return db.session.scalars(owned).all()


def owns_any(user_id: UUID) -> bool:
    """Return whether a user owns a group."""
    statement = select(GroupOwner.group_id).where(GroupOwner.user_id == user_id).limit(1)
    return db.session.scalar(statement) is not None


def owns(group_id: UUID, user_id: UUID) -> bool:
    """Return whether a user, disabled or not, is registered as owner of a group."""
    of_both = (GroupOwner.group_id == group_id, GroupOwner.user_id == user_id)
    return db.session.scalar(select(GroupOwner.user_id).where(*of_both)) is not None


def is_owner(group_id: UUID, user_id: UUID) -> bool:
    """Return whether a user owns a group, and can sign in."""
    statement = select(GroupOwner.user_id).join(User, User.id == GroupOwner.user_id)
    of_both = statement.where(GroupOwner.group_id == group_id, GroupOwner.user_id == user_id)
    return db.session.scalar(of_both.where(users.enabled())) is not None


def owners(group_id: UUID) -> Sequence[User]:
    """Return the owners of a group by email address, disabled ones as well."""
    statement = select(User).join(GroupOwner, GroupOwner.user_id == User.id)
    return db.session.scalars(
        statement.where(GroupOwner.group_id == group_id).order_by(User.email)
    ).all()


def owners_by_group() -> dict[str, list[str]]:
    """Return the email addresses of the owners of each group that has any, by name."""
    statement = (
        select(Group.name, User.email)
        .join(GroupOwner, GroupOwner.group_id == Group.id)
        .join(User, User.id == GroupOwner.user_id)
        .order_by(Group.name, User.email)
    )
    by_group: dict[str, list[str]] = {}
    for name, email in db.session.execute(statement):
        by_group.setdefault(name, []).append(email)
    return by_group


def add_owners(group_id: UUID, user_ids: Iterable[UUID]) -> None:
    """Make these users owners of a group; those who are already stay."""
    now = clock.now()
    rows = [{"group_id": group_id, "user_id": id_, "created_at": now} for id_ in user_ids]
    if rows:
        dialects.insert_or_ignore(GroupOwner, rows)


def remove_owners(group_id: UUID, user_ids: Collection[UUID]) -> None:
    of_group = delete(GroupOwner).where(GroupOwner.group_id == group_id)
    db.session.execute(of_group.where(GroupOwner.user_id.in_(user_ids)))


def with_id(group_id: UUID) -> Select[Group]:
    """Select the group with this id, if there is one."""
    return select(Group).where(Group.id == group_id)


def find(group_id: UUID) -> Group | None:
    return first_in(with_id(group_id))


def first_in(statement: Select[Group]) -> Group | None:
    return db.session.scalar(statement)


def find_by_name(name: str) -> Group | None:
    return db.session.scalar(select(Group).where(Group.name == name))


def of_names(names: Collection[str]) -> Sequence[Group]:
    """Return the groups with these names, by name."""
    statement = select(Group).where(Group.name.in_(list(names))).order_by(Group.name)
    return db.session.scalars(statement).all() if names else ()


def first(limit: int) -> list[str]:
    """Return the names of the first groups by name."""
    return list(db.session.scalars(select(Group.name).order_by(Group.name).limit(limit)))


def names() -> set[str]:
    """Return the names of all groups, including those without members."""
    return set(db.session.scalars(select(Group.name)))


def lock(
    group_id: UUID, user_ids: Collection[UUID] = (), *, with_members: bool = False
) -> Group | None:
    """Lock a group until the transaction ends, and return its current row.

    The users that are added or removed are locked first, as when a user's own groups are changed;
    `with_members`: all members, too, and before them the APIs and clients that require the group.
    """
    if with_members and (group := find(group_id)):
        lock_requiring(group.name)
        user_ids = {*user_ids, *(member.id for member in groups.all_members(group.name))}
    groups.lock_users(user_ids)
    return dialects.lock(Group, Group.name, Group.id == group_id)


class Requiring(NamedTuple):
    """The APIs that require a group or give roles by it, and the ids of the clients that do."""

    apis: list[Api]
    client_ids: list[str]


def lock_requiring(name: str) -> Requiring:
    """Lock the APIs and clients that require a group or give roles by it, and the APIs' clients."""
    api_ids = sorted(api.api_id for api in apis.naming(name))
    locked = [api for api_id in api_ids if (api := apis.lock(api_id)) and name in api.named_groups]
    client_ids = {client.client_id for client in clients.every() if name in client.named_groups}
    of_apis = {client.client_id for api in locked for client in apis.clients_of(api.identifier)}
    for client_id in sorted(client_ids | of_apis):
        clients.lock(client_id)  # before users are locked: see there
    return Requiring(locked, sorted(client_ids))


def ensure(names: Iterable[str]) -> None:
    """Add the groups that do not exist yet; several transactions may do so at once."""
    for batch in batches(sorted(set(names)), 5_000):  # of rows with five values
        existing = {group.name for group in of_names(batch)}
        now = clock.now()
        rows = [
            {"id": uuid4(), "name": name, "version": 1, "created_at": now, "updated_at": now}
            for name in batch
            if name not in existing
        ]
        if rows:
            dialects.insert_or_ignore(Group, rows)


def touch(names: Iterable[str]) -> None:
    """Record that the members of these groups have changed; add the groups that do not exist."""
    listed = sorted(set(names))
    existing: set[str] = set()
    for batch in batches(listed):
        # Locked in one order: two transactions never wait for each other.
        locked = select(Group.name).where(Group.name.in_(batch)).order_by(Group.name)
        existing.update(db.session.scalars(locked.with_for_update()))
        changed = update(Group).where(Group.name.in_(batch))
        write(changed.values(version=Group.version + 1, updated_at=clock.now()))
    ensure(name for name in listed if name not in existing)


def add(group: Group) -> None:
    db.session.add(group)
    db.session.flush()


def remove(group: Group) -> None:
    db.session.execute(delete(Group).where(Group.id == group.id))
