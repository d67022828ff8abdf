"""Statements about the definitions of attributes, and about the users who have values."""

from collections.abc import Sequence

from sqlalchemy import delete, false, func, select, update

from sso.database import dialects
from sso.extensions import db
from sso.models import Attribute, User
from sso.store import groups, lists

_BY_NAME = select(Attribute).order_by(Attribute.name)


def every() -> Sequence[Attribute]:
    """Return all definitions by name."""
    return db.session.scalars(_BY_NAME).all()


def find(name: str) -> Attribute | None:
    return db.session.scalar(select(Attribute).where(Attribute.name == name))


def share() -> Sequence[Attribute]:
    """Return all definitions by name, and keep them unchanged until the transaction ends.

    Call it before clients and users are locked: a deletion locks these last. SQLite locks no rows,
    so nobody else writes anything meanwhile.
    """
    if not dialects.is_postgresql():  # begins a transaction that writes
        db.session.execute(update(Attribute).where(false()).values(type=Attribute.type))
    locked = _BY_NAME.with_for_update(read=True)
    return db.session.scalars(locked.execution_options(populate_existing=True)).all()


def lock(name: str) -> Attribute | None:
    """Lock a definition until the transaction ends, and return its current row; see `share`."""
    return dialects.lock(Attribute, Attribute.type, Attribute.name == name)


def detached() -> dict[str, Attribute]:
    """Return all definitions by name, as objects outside any session."""
    rows = every()
    for row in rows:
        db.session.expunge(row)
    return {row.name: row for row in rows}


def add(attribute: Attribute) -> None:
    db.session.add(attribute)
    db.session.flush()


def remove(attribute: Attribute) -> None:
    db.session.execute(delete(Attribute).where(Attribute.name == attribute.name))


def count_values(name: str) -> int:
    """Return how many users have a value. Reads all users."""
    return (
        db.session.scalar(
            select(func.count()).select_from(User).where(dialects.has_key(User.attributes, name))
        )
        or 0
    )


def remove_values(name: str) -> int:
    """Remove the values of all users; return how many had one. Reads all users."""
    dialects.without_time_limit()
    ids = sorted(db.session.scalars(select(User.id).where(dialects.has_key(User.attributes, name))))
    rest = dialects.without_key(User.attributes, name)
    for batch in lists.batches(ids):
        groups.lock_users(batch)
        lists.write(update(User).where(User.id.in_(batch)).values(attributes=rest))
    return len(ids)
