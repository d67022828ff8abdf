"""Writes audit events into the database: with their transaction, or soon after in batches.

An event waits in its application context. The next commit takes it along by one statement; what
is left at the context's end goes to a buffer of the process, which a thread writes within a
second, on a connection of its own, so that no request waits for it.
"""

import json
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from flask import Flask, g, has_app_context
from sqlalchemy import Connection, Engine, Uuid, column, event, insert, table
from sqlalchemy.orm import Session

from sso import audit
from sso.audit import webhook_queue
from sso.database.buffer import Buffer
from sso.extensions import UtcDateTime, db

_NOTED = "sso_audit"  # the events of an application context, in its `g`


# Not the model's: for that SQLAlchemy loads its whole dialect of PostgreSQL, and so every command
# would wait for it.
_EVENTS = table(
    "audit_events",
    column("id", Uuid),
    column("at", UtcDateTime),
    *(column(name) for name in ("name", "user_id", "client_id", "address", "browser", "fields")),
)


def add(connection: Connection, events: Iterable[audit.Record]) -> None:
    """Write events on a connection of the caller's, by one statement."""
    connection.execute(insert(_EVENTS), [_values(event) for event in events])


def _values(event: audit.Record) -> dict[str, Any]:
    return {
        "id": uuid4(),
        "at": event.at,
        "name": str(event.name),
        "user_id": event.user[:36] if event.user else None,
        "client_id": event.client[:48] if event.client else None,
        "address": event.address or None,
        "browser": event.browser or None,
        "fields": json.dumps(event.fields, sort_keys=True),
    }


_BUFFER = "sso.audit.buffer"


def init_app(app: Flask, engine: Engine) -> None:
    """Record the events of this application; those of no transaction are written by `engine`.

    It has no pool: nothing stays open between two bursts, and a fork shares nothing.
    """
    buffer = Buffer(engine, add, "audit events")
    app.extensions[_BUFFER] = buffer
    app.extensions[audit.EXTENSION] = _note
    app.teardown_appcontext(lambda fault: _end_of_context(buffer, fault))


def flush(app: Flask) -> bool:
    """Write now what waits in this process."""
    buffer: Buffer[audit.Record] = app.extensions[_BUFFER]
    return buffer.flush()


def _note(noted: audit.Record) -> None:
    g.setdefault(_NOTED, []).append(noted)


def _is_ours(session: Session) -> bool:
    return has_app_context() and session is db.session() and not session.in_nested_transaction()


def write(connection: Connection) -> None:
    """Write what waits on the connection of a transaction that is about to be committed."""
    if pending := g.get(_NOTED):
        add(connection, pending)
        # Only here: what belongs to no transaction may have been rolled back.
        webhook_queue.add(connection, pending)


def written() -> None:
    """The transaction is committed."""
    g.pop(_NOTED, None)


def undone() -> None:
    """The transaction is rolled back: what it recorded did not happen."""
    if pending := g.get(_NOTED):
        pending[:] = [one for one in pending if one.name.survives_rollback]


@event.listens_for(db.session, "before_commit")
def _write(session: Session) -> None:
    if _is_ours(session) and g.get(_NOTED):
        session.flush()  # webhooks get users as they will be
        write(session.connection())


@event.listens_for(db.session, "after_commit")
def _written(session: Session) -> None:
    if _is_ours(session):
        written()


@event.listens_for(db.session, "after_rollback")
def _undone(session: Session) -> None:
    if _is_ours(session):
        undone()


def _end_of_context(buffer: Buffer[audit.Record], fault: BaseException | None) -> None:
    pending: list[Any] = g.pop(_NOTED, [])
    left = [one for one in pending if one.name.survives_rollback or fault is None]
    if left:
        buffer.put(left)
