"""Statements about groups, which exist as long as a user or a client names them."""

from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, String, func, select, true
from sqlalchemy.sql.selectable import NamedFromClause

from sso.extensions import db
from sso.models import User


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


def has_member(group: str) -> ColumnElement[bool]:
    """A condition on users: they are in this group."""
    listed, name = _memberships()
    return select(1).select_from(listed).where(name == group).correlate(User).exists()


def _memberships() -> tuple[NamedFromClause, ColumnElement[str]]:
    """The elements of a user's list of groups, and the column that holds them."""
    is_postgresql = db.engine.dialect.name == "postgresql"
    function = func.json_array_elements_text if is_postgresql else func.json_each
    listed = function(User.groups).table_valued("value", name="membership", joins_implicitly=True)
    return listed, listed.c.value.cast(String)
