"""Statements about the resources of SCIM: the conditions of its filters, and its pages."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, false, func, select

from sso.database import dialects
from sso.extensions import db
from sso.models import Group, User
from sso.store import groups

MOST_OFFSET = 1_000_000_000
Condition = ColumnElement[bool]


def users_where(condition: Condition | None, offset: int, limit: int) -> tuple[int, Sequence[User]]:
    """Return how many users meet the condition, and one page of them, by id."""
    page: tuple[int, Sequence[User]] = _page(User, condition, offset, limit)
    return page


def groups_where(
    condition: Condition | None, offset: int, limit: int
) -> tuple[int, Sequence[Group]]:
    """Return how many groups meet the condition, and one page of them, by id."""
    page: tuple[int, Sequence[Group]] = _page(Group, condition, offset, limit)
    return page


def _page(model: Any, condition: Condition | None, offset: int, limit: int) -> Any:
    count, rows = select(func.count()).select_from(model), select(model).order_by(model.id)
    if condition is not None:
        count, rows = count.where(condition), rows.where(condition)
    total = db.session.scalar(count) or 0
    if not limit or offset >= total:
        return total, ()
    return total, db.session.scalars(rows.offset(min(offset, MOST_OFFSET)).limit(limit)).all()


def has_id(model: type[User] | type[Group], text: str) -> Condition:
    """Return the condition that a row has this id."""
    try:
        return model.id == UUID(text)
    except ValueError:
        return false()


def has_user_name(name: str) -> Condition:
    """Return the condition that a user has this user name; by default it is the email.

    Two questions, each with its index: SQLite that knows the tables' sizes would answer one with
    `or` from the table.
    """
    name = name.casefold()
    own = select(User.id).where(User.user_name == name)
    default = select(User.id).where(User.user_name.is_(None), User.email == name)
    return User.id.in_(own.union_all(default))


def find_by_user_name(name: str) -> User | None:
    """Return the user with this user name for provisioning clients; by default it is the email."""
    return db.session.scalar(select(User).where(has_user_name(name)).limit(1))


def has_trigrams() -> bool:
    """Return whether an index finds text anywhere in email, name and user name (migration 0053)."""
    index = func.to_regclass("ix_users_trigrams")
    return dialects.is_postgresql() and db.session.scalar(select(index.is_not(None))) is True


def are_more_than(number: int, condition: Condition | None = None) -> bool:
    """Return whether there are more people than this, of those who meet the condition."""
    people = select(User.id) if condition is None else select(User.id).where(condition)
    limited = people.limit(number + 1).subquery()
    return (db.session.scalar(select(func.count()).select_from(limited)) or 0) > number


USER_NAME = func.coalesce(User.user_name, User.email)


def is_member_of(group_id: str) -> Condition:
    """Return the condition that a user is in the group with this id."""
    group = db.session.scalar(select(Group).where(has_id(Group, group_id)))
    return groups.has_member(group.name) if group else false()


def has_as_member(user_id: str) -> Condition:
    """Return the condition that a group has the user with this id as a member."""
    names = db.session.scalar(select(User.groups).where(has_id(User, user_id)))
    return Group.name.in_(names) if names else false()


def changed_at(model: type[User] | type[Group], operator: str, moment: datetime) -> Condition:
    """Return the condition that a row was changed before or after a moment: gt, ge, lt, le."""
    column: Any = model.updated_at
    conditions: dict[str, Condition] = {
        "gt": column > moment,
        "ge": column >= moment,
        "lt": column < moment,
        "le": column <= moment,
    }
    return conditions[operator]
