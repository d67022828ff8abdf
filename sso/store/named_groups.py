"""Statements about the groups themselves. Who is in them: see `groups`."""

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID, uuid4

from sqlalchemy import Select, delete, select, update

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import Group
from sso.store import clients, groups
from sso.store.lists import Order, batches, write

BY_NAME = Order((Group.name,))


def containing(text: str) -> Select[Group]:
    """The groups with this text in their name; see `BY_NAME`."""
    found = select(Group)
    return found.where(Group.name.icontains(text, autoescape=True)) if text else found


def find(group_id: UUID) -> Group | None:
    return db.session.scalar(select(Group).where(Group.id == group_id))


def find_by_name(name: str) -> Group | None:
    return db.session.scalar(select(Group).where(Group.name == name))


def of_names(names: Collection[str]) -> Sequence[Group]:
    """The groups with these names, in their order."""
    found = select(Group).where(Group.name.in_(list(names))).order_by(Group.name)
    return db.session.scalars(found).all() if names else ()


def names() -> set[str]:
    """Every group, also those without members."""
    return set(db.session.scalars(select(Group.name)))


def lock(
    group_id: UUID, people: Collection[UUID] = (), *, with_members: bool = False
) -> Group | None:
    """A group as the row is now, and stays until the transaction ends.

    Before it, those are locked who gain or lose it, as when a user's own groups are changed;
    `with_members`: all members, and before them the clients that require it.
    """
    if with_members and (known := find(group_id)):
        lock_requiring(known.name)
        people = {*people, *(one.id for one in groups.all_members(known.name))}
    groups.lock_users(people)
    return dialects.lock(Group, Group.name, Group.id == group_id)


def lock_requiring(name: str) -> list[str]:
    """Lock the clients for a group; gives their ids."""
    requiring = sorted(one.client_id for one in clients.every() if name in one.groups)
    for client_id in requiring:
        clients.lock(client_id)  # before users are locked (see there)
    return requiring


def ensure(names: Iterable[str]) -> None:
    """Add the groups that are not there yet; several transactions may do so at once."""
    listed = sorted(set(names))
    for batch in batches(listed, 5_000):  # of rows with five values
        there = {group.name for group in of_names(batch)}
        now = clock.now()
        rows = [
            {"id": uuid4(), "name": name, "version": 1, "created_at": now, "updated_at": now}
            for name in batch
            if name not in there
        ]
        if rows:
            dialects.insert_or_ignore(Group, rows)


def touch(names: Iterable[str]) -> None:
    """Note that who is in these groups has changed; add those that are not there yet."""
    listed = sorted(set(names))
    there: set[str] = set()
    for batch in batches(listed):
        # Locked in one order: two transactions never wait for each other.
        locked = select(Group.name).where(Group.name.in_(batch)).order_by(Group.name)
        there.update(db.session.scalars(locked.with_for_update()))
        changed = update(Group).where(Group.name.in_(batch))
        write(changed.values(version=Group.version + 1, updated_at=clock.now()))
    ensure(name for name in listed if name not in there)


def add(group: Group) -> None:
    db.session.add(group)
    db.session.flush()


def remove(group: Group) -> None:
    db.session.execute(delete(Group).where(Group.id == group.id))
