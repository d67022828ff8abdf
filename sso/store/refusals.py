"""Statements about refused requests, and the buffer that writes them (see `ratelimit.refusals`)."""

from collections import defaultdict
from collections.abc import Sequence
from uuid import uuid4

from flask import Flask
from sqlalchemy import (
    Connection,
    NullPool,
    bindparam,
    delete,
    insert,
    select,
    text,
)

from sso import database
from sso.database.buffer import Buffer
from sso.extensions import db
from sso.models import Client, Refusal, User

KEPT = 100  # of a bucket
_EXTENSION = "sso.refusals"

# A client or a user that is gone by now must not keep the rest from being written.
_ADD = insert(Refusal).values(
    client_id=select(Client.client_id).where(Client.client_id == bindparam("c")).scalar_subquery(),
    user_id=select(User.id).where(User.id == bindparam("u")).scalar_subquery(),
)


def open_buffer(app: Flask) -> Buffer[Refusal]:
    """Where the refusals of this application wait to be written."""
    with app.app_context():
        engine = database.open_engine(db.engine.url, poolclass=NullPool)
    buffer = app.extensions[_EXTENSION] = Buffer(engine, add, "refusals")
    return buffer


def flush(app: Flask) -> bool:
    """Write now what waits in this process."""
    buffer: Buffer[Refusal] = app.extensions[_EXTENSION]
    return buffer.flush()


def add(connection: Connection, refusals: Sequence[Refusal]) -> None:
    """Write refusals, and delete the oldest of each bucket that has more than `KEPT`."""
    if connection.dialect.name == "postgresql":
        # Shorter than it takes to find a deadlock: who deletes clients or users goes first.
        connection.execute(text("SET LOCAL lock_timeout = '500ms'"))
    buckets = defaultdict(list)
    for one in refusals:
        buckets[one.bucket].append(one)
    newest = [one for bucket in buckets.values() for one in bucket[-KEPT:]]
    connection.execute(_ADD, [_values(one) for one in newest])
    for bucket in buckets:
        of_bucket = select(Refusal.id).where(Refusal.bucket == bucket)
        oldest = of_bucket.order_by(Refusal.at.desc(), Refusal.id).offset(KEPT)
        connection.execute(
            delete(Refusal).where(Refusal.id.in_(oldest.with_for_update(skip_locked=True)))
        )


def _values(refusal: Refusal) -> dict[str, object]:
    names = ("request_id", "at", "bucket", "name", "endpoint", "details")
    values = {name: getattr(refusal, name) for name in names}
    return {"id": uuid4(), "c": refusal.client_id, "u": refusal.user_id, **values}


def find(request_id: str, *, by_beginning: bool = False, limit: int) -> Sequence[Refusal]:
    """The refusals of requests with this id, or with one that begins so, oldest first."""
    column = Refusal.request_id
    found_by = column.istartswith(request_id, autoescape=True) if by_beginning else None
    statement = select(Refusal).where(column == request_id if found_by is None else found_by)
    return db.session.scalars(statement.order_by(Refusal.at, Refusal.id).limit(limit)).all()


def newest(*, client_id: str | None, limit: int) -> Sequence[Refusal]:
    """The newest refusals, newest first."""
    statement = select(Refusal).order_by(Refusal.at.desc(), Refusal.id).limit(limit)
    if client_id is not None:
        statement = statement.where(Refusal.client_id == client_id)
    return db.session.scalars(statement).all()
