"""Statements about the definitions of attributes, and about the users who have values."""

from collections.abc import Collection, Iterator, Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, delete, false, func, select, update

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


def _text(name: str) -> ColumnElement[str]:
    text: ColumnElement[str] = User.attributes[name].as_string()
    return text


def holders(name: str, values: Collection[str]) -> Iterator[tuple[str, UUID]]:
    """Yield each of these values, which are texts, with each user who has it. Reads all users."""
    text = _text(name)
    for batch in lists.batches(sorted({*values})):
        for row in db.session.execute(select(text, User.id).where(text.in_(batch))):
            yield row[0], row[1]


def repeated(name: str, most: int) -> list[str]:
    """Return some of the values, which are texts, that several users have. Reads all users."""
    text = _text(name)
    several = select(text).where(text.is_not(None)).group_by(text).having(func.count() > 1)
    return list(db.session.scalars(several.order_by(text).limit(most)))


def values_like_ids(name: str) -> Iterator[tuple[str, UUID]]:
    """Yield the values that are as long as a user's ID, with their users. Reads all users."""
    text = _text(name)
    statement = select(text, User.id).where(func.length(text) == len(str(UUID(int=0))))
    for row in db.session.execute(statement):
        yield row[0], row[1]


_SUBJECTS = 1  # the second half of the key of an advisory lock; see `users.administrators_remain`


def lock_subjects() -> None:
    """Let nobody else change subjects of people until the transaction ends."""
    dialects.exclusive_lock(dialects.LOCK_KIND, _SUBJECTS)


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
