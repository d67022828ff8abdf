"""Statements for listing users and groups by conditions; see `scim.filters`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, false, func, or_, select

from sso.extensions import db
from sso.models import Group, User
from sso.store import groups

MOST_OFFSET = 1_000_000_000
Condition = ColumnElement[bool]


def users(condition: Condition | None, offset: int, limit: int) -> tuple[int, Sequence[User]]:
    """How many users meet the condition, and some of them, by id."""
    found: tuple[int, Sequence[User]] = _page(User, condition, offset, limit)
    return found


def named_groups(
    condition: Condition | None, offset: int, limit: int
) -> tuple[int, Sequence[Group]]:
    """How many groups meet the condition, and some of them, by id."""
    found: tuple[int, Sequence[Group]] = _page(Group, condition, offset, limit)
    return found


def _page(model: Any, condition: Condition | None, offset: int, limit: int) -> Any:
    count, rows = select(func.count()).select_from(model), select(model).order_by(model.id)
    if condition is not None:
        count, rows = count.where(condition), rows.where(condition)
    total = db.session.scalar(count) or 0
    if not limit or offset >= total:
        return total, ()
    return total, db.session.scalars(rows.offset(min(offset, MOST_OFFSET)).limit(limit)).all()


def has_id(model: type[User] | type[Group], text: str) -> Condition:
    """Whether it is the one with this id."""
    try:
        return model.id == UUID(text)
    except ValueError:
        return false()


def has_user_name(name: str) -> Condition:
    """Whether it is the user with this name, by one of two indexes."""
    name = name.casefold()
    return or_(User.user_name == name, and_(User.user_name.is_(None), User.email == name))


def find_user(name: str) -> User | None:
    """The user whom provisioning clients know by this name; without one, it is the email."""
    return db.session.scalar(select(User).where(has_user_name(name)).limit(1))


USER_NAME = func.coalesce(User.user_name, User.email)


def is_member_of(group_id: str) -> Condition:
    """Whether the user is in the group with this id."""
    group = db.session.scalar(select(Group).where(has_id(Group, group_id)))
    return groups.has_member(group.name) if group else false()


def has_as_member(user_id: str) -> Condition:
    """Whether the user with this id is in the group."""
    names = db.session.scalar(select(User.groups).where(has_id(User, user_id)))
    return Group.name.in_(names) if names else false()


def changed(model: type[User] | type[Group], operator: str, moment: datetime) -> Condition:
    """Whether it was changed before or after a moment: gt, ge, lt, le."""
    column: Any = model.updated_at
    compared: dict[str, Condition] = {
        "gt": column > moment,
        "ge": column >= moment,
        "lt": column < moment,
        "le": column <= moment,
    }
    return compared[operator]
