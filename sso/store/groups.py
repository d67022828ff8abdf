"""Statements about the members of groups, which stand in the rows of users by name."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Row,
    SQLColumnExpression,
    String,
    Table,
    Text,
    Uuid,
    bindparam,
    column,
    false,
    func,
    literal_column,
    or_,
    select,
    table,
    true,
    update,
)
from sqlalchemy import cast as type_cast
from sqlalchemy.sql.selectable import NamedFromClause

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.flow import group_ends
from sso.models import Group, User
from sso.store.lists import rows_with

# Only on SQLite, where triggers maintain it (migration 0022).
MEMBERSHIPS = table(
    "memberships", column("name", String), column("email", String), column("user_id", Uuid)
)


class Members(NamedTuple):
    """The number of users in a group, and the ids and emails of the first ones by email."""

    total: int
    first: list[tuple[UUID, str]]


def members(most: int) -> dict[str, Members]:
    """Return every group that users are in, each with at most this many of its members."""
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
    statement = select(numbered).where(numbered.c.number <= most)
    members: dict[str, Members] = {}
    for row in db.session.execute(statement.order_by(numbered.c.name, numbered.c.number)):
        members.setdefault(row.name, Members(row.members, [])).first.append((row.id, row.email))
    return members


def with_members(except_of: UUID | None = None) -> set[str]:
    """Return the names of all groups that users are in, leaving out one user if given."""
    listed, name = _memberships()
    statement = select(name).select_from(User).join(listed, true()).distinct()
    if except_of:
        statement = statement.where(User.id != except_of)
    return set(db.session.scalars(statement))


def counts(names: Collection[str], most: int) -> dict[str, int]:
    """Return how many members each of these groups has, or `most` plus one if there are more.

    They are counted in one statement, and those of each group by an index.
    """
    members = (
        select(User.id).where(has_member(Group.name))
        if dialects.is_postgresql()
        else select(MEMBERSHIPS.c.email).where(MEMBERSHIPS.c.name == Group.name)
    )
    counted = members.limit(most + 1).correlate(Group).subquery()
    number = select(func.count()).select_from(counted).correlate(Group).scalar_subquery()
    rows = db.session.execute(select(Group.name, number).where(Group.name.in_(names)))
    return {**dict.fromkeys(names, 0), **{row[0]: row[1] for row in rows}}


def has_member(
    group: str | SQLColumnExpression[str], *, among_few: bool = False
) -> ColumnElement[bool]:
    """Return the condition that a user is in this group; an index answers it.

    `among_few`: other conditions find the users, and each one is looked up. Only SQLite has to be
    told: PostgreSQL has statistics.
    """
    if dialects.is_postgresql():  # this expression has an index
        name = func.jsonb_build_array(type_cast(group, Text))
        return literal_column("users.groups::jsonb").bool_op("@>")(name)
    of_group = select(MEMBERSHIPS.c.email).where(MEMBERSHIPS.c.name == group)
    if among_few:
        return of_group.where(MEMBERSHIPS.c.email == User.email).correlate(User).exists()
    return User.email.in_(of_group)


def has_any(names: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that a user is in one of these groups, or was until the worker looks."""
    if dialects.is_postgresql():
        return or_(false(), *(has_member(name) for name in sorted(names)))
    return User.email.in_(select(MEMBERSHIPS.c.email).where(MEMBERSHIPS.c.name.in_(sorted(names))))


def _memberships() -> tuple[NamedFromClause, ColumnElement[str]]:
    """Return the elements of users' lists of groups as a table, and its column of names."""
    return dialects.json_values(User.stored_groups, "membership")


class Member(NamedTuple):
    """A user who is in a group, or may be added to one."""

    id: UUID
    name: str
    groups: list[str]
    group_ends: dict[str, str] | None = None
    group_ends_told: dict[str, str] | None = None

    def is_in(self, group: str) -> bool:
        """Return whether the user is in a group now: a membership may have ended."""
        return group in self.present_groups

    @property
    def present_groups(self) -> list[str]:
        """Return the groups without those in which the membership has ended."""
        return group_ends.present(self.groups, self.group_ends, clock.now())


_MEMBER = select(
    User.id, User.name, User.stored_groups.label("groups"), User.group_ends, User.group_ends_told
)


def all_members(group: str) -> Sequence[Member]:
    """Return all members of a group, by id."""
    return _members(db.session.execute(_MEMBER.where(has_member(group)).order_by(User.id)))


def member_ids(names: Collection[str]) -> dict[str, list[UUID]]:
    """Return the ids of all members of each of these groups, in their order."""
    members: dict[str, list[UUID]] = {name: [] for name in names}
    if dialects.is_postgresql():
        listed, name = _memberships()
        statement = select(name, User.id).join(listed, true()).where(has_any(names))
    else:
        name = MEMBERSHIPS.c.name
        statement = select(name, MEMBERSHIPS.c.user_id)
    for group, user_id in db.session.execute(statement.where(name.in_(names))):
        members[group].append(user_id)
    return {group: sorted(ids) for group, ids in members.items()}


def count_members(group: str) -> int:
    return db.session.scalar(select(func.count()).select_from(User).where(has_member(group))) or 0


def lock_users(ids: Collection[UUID]) -> Sequence[Member]:
    """Lock these users until the transaction ends; return those that exist.

    SQLite locks nothing here: the caller has written before.
    """
    in_order = _MEMBER.order_by(User.id).with_for_update()
    return _members(rows_with(in_order, User.id, sorted(ids)))


def lock_members(members: Iterable[Member]) -> Sequence[Member]:
    """Lock these members until the transaction ends, and return their current rows."""
    return lock_users({member.id for member in members})


def users(ids: Collection[UUID]) -> Iterator[User]:
    """Yield these users as their rows are now."""
    current = select(User).execution_options(populate_existing=True)
    for (user,) in rows_with(current, User.id, ids):
        yield user


class NewGroups(NamedTuple):
    """The groups of a user, and the ends of memberships."""

    names: list[str]
    ends: dict[str, str]
    told: dict[str, str]


def replace_groups(groups: Mapping[UUID, NewGroups]) -> None:
    """Replace the groups of each of these users, who are locked."""
    if not groups:
        return
    table = cast(Table, User.__table__)
    statement = (
        update(table)
        .where(table.c.id == bindparam("user_id"))
        .values(
            groups=bindparam("names", type_=table.c.groups.type),
            group_ends=bindparam("ends", type_=table.c.group_ends.type),
            group_ends_told=bindparam("told", type_=table.c.group_ends_told.type),
            groups_due_at=bindparam("due", type_=table.c.groups_due_at.type),
        )
    )
    rows = [
        {"user_id": user_id, "names": new.names, "ends": new.ends or None,
         "told": new.told or None, "due": group_ends.next_due(new.ends, new.told)}
        for user_id, new in groups.items()
    ]  # fmt: skip
    db.session.connection().execute(statement, rows)


def _members(rows: Iterable[Row[*tuple[Any, ...]]]) -> list[Member]:
    return [Member(*row) for row in rows]
