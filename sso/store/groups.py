"""Statements about groups, which exist as long as a user or a client names them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    Table,
    Text,
    Uuid,
    bindparam,
    column,
    func,
    literal_column,
    select,
    table,
    true,
    update,
)
from sqlalchemy import cast as type_cast
from sqlalchemy.sql.selectable import NamedFromClause

from sso.database import dialects
from sso.extensions import db
from sso.models import User
from sso.store.lists import batches

# Of SQLite alone, where triggers keep it (migration 0022).
MEMBERSHIPS = table(
    "memberships", column("name", String), column("email", String), column("user_id", Uuid)
)


class Members(NamedTuple):
    """How many users are in a group, and the first of them by email: id and email."""

    total: int
    first: list[tuple[UUID, str]]


def members(most: int) -> dict[str, Members]:
    """Every group that users are in, with so many of its members."""
    listed, name = _memberships()
    numbered = (
        select(
            name.label("name"),
            User.id,
            User.email,
            func.count().over(partition_by=name).label("members"),
            func.row_number().over(partition_by=name, order_by=User.email).label("number"),
        )
        .join(listed, true())
        .subquery()
    )
    first = select(numbered).where(numbered.c.number <= most)
    found: dict[str, Members] = {}
    for row in db.session.execute(first.order_by(numbered.c.name, numbered.c.number)):
        found.setdefault(row.name, Members(row.members, [])).first.append((row.id, row.email))
    return found


def with_members(except_of: UUID | None = None) -> set[str]:
    """Every group that users are in, not counting one of them."""
    listed, name = _memberships()
    found = select(name).select_from(User).join(listed, true()).distinct()
    return set(db.session.scalars(found.where(User.id != except_of) if except_of else found))


def has_member(group: str, *, among_few: bool = False) -> ColumnElement[bool]:
    """A condition on users: they are in this group. By an index.

    `among_few`: other conditions find the users, and each is looked up. It decides how SQLite does
    it; PostgreSQL has statistics.
    """
    if dialects.is_postgresql():  # by the index of that expression
        wanted = func.jsonb_build_array(type_cast(group, Text))
        return literal_column("users.groups::jsonb").bool_op("@>")(wanted)
    of_group = select(MEMBERSHIPS.c.email).where(MEMBERSHIPS.c.name == group)
    if among_few:
        return of_group.where(MEMBERSHIPS.c.email == User.email).correlate(User).exists()
    return User.email.in_(of_group)


def _memberships() -> tuple[NamedFromClause, ColumnElement[str]]:
    """The elements of a user's list of groups, and the column that holds them."""
    return dialects.json_values(User.groups, "membership")


class Member(NamedTuple):
    """A user who is in a group, or may come into one."""

    id: UUID
    name: str
    groups: list[str]


_MEMBER = select(User.id, User.name, User.groups)


def all_members(group: str) -> Sequence[Member]:
    """Everybody in a group, by id."""
    return _members(_MEMBER.where(has_member(group)).order_by(User.id))


def count_members(group: str) -> int:
    return db.session.scalar(select(func.count()).select_from(User).where(has_member(group))) or 0


def lock_users(ids: Collection[UUID]) -> Sequence[Member]:
    """Those of these users who exist; locked until the transaction ends.

    SQLite locks nothing here: the caller has written before.
    """
    found: list[Member] = []
    for batch in batches(sorted(ids)):
        some = _MEMBER.where(User.id.in_(batch)).order_by(User.id)
        found += _members(some.with_for_update())
    return found


def lock_members(members: Iterable[Member]) -> Sequence[Member]:
    """The same people as they are now; locked until the transaction ends."""
    return lock_users({one.id for one in members})


def users(ids: Collection[UUID]) -> Iterator[User]:
    """The users as the rows are now."""
    for batch in batches(list(ids)):
        some = select(User).where(User.id.in_(batch))
        yield from db.session.scalars(some.execution_options(populate_existing=True))


def replace_groups(groups: Mapping[UUID, list[str]]) -> None:
    """Give each of these users another list of groups."""
    if not groups:
        return
    people = cast(Table, User.__table__)
    changed = (
        update(people)
        .where(people.c.id == bindparam("user_id"))
        .values(groups=bindparam("names", type_=people.c.groups.type))
    )
    db.session.connection().execute(
        changed, [{"user_id": user_id, "names": names} for user_id, names in groups.items()]
    )


def _members(statement: Select[*tuple[Any, ...]]) -> list[Member]:
    return [Member(row.id, row.name, row.groups) for row in db.session.execute(statement)]
