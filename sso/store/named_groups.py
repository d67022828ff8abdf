"""Statements about the groups themselves; `groups` has those about their members."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import Select, delete, select, update

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import Api, Group
from sso.store import apis, clients, groups
from sso.store.lists import Order, batches, write

BY_NAME = Order((Group.name,))


def containing(text: str) -> Select[Group]:
    """Select the groups with this text in their name, to be ordered by `BY_NAME`."""
    statement = select(Group)
    return statement.where(Group.name.icontains(text, autoescape=True)) if text else statement


def find(group_id: UUID) -> Group | None:
    return db.session.scalar(select(Group).where(Group.id == group_id))


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
