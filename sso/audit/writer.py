"""Writes audit events into the database: with their transaction, or soon after in batches.

An event waits in its application context. The next commit takes it along by one statement; what
is left at the context's end goes to a buffer of the process, which a thread writes within a
second, on a connection of its own, so that no request waits for it.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import uuid4

from flask import Flask, g, has_app_context
from sqlalchemy import Connection, Engine, Uuid, column, event, insert, table
from sqlalchemy.orm import Session

from sso import audit
from sso.audit import webhook_queue
from sso.database.buffer import Buffer
from sso.extensions import UtcDateTime, db

_LONGEST_CLIENT_ID = 255  # as `models.clients` has it, which would load Authlib
_NOTED = "sso_audit"  # the events of an application context, in its `g`


# Not the model's: for that SQLAlchemy loads its whole dialect of PostgreSQL, and so every command
# would wait for it.
_EVENTS = table(
    "audit_events",
    column("id", Uuid),
    column("at", UtcDateTime),
    *(column(name) for name in ("name", "user_id", "client_id", "address", "browser", "fields")),
)


class Pending(NamedTuple):
    """An event that waits, and its row.

    The row is made when the event is recorded: while events are written, SQLite lets nobody else
    write, and one command may have recorded thousands.
    """

    record: audit.Record
    row: dict[str, Any]


def pending(record: audit.Record) -> Pending:
    return Pending(record, _row(record))


def add(connection: Connection, events: Iterable[Pending]) -> None:
    """Write events on a connection of the caller's, by one statement."""
    connection.execute(insert(_EVENTS), [event.row for event in events])


def _row(record: audit.Record) -> dict[str, Any]:
    return {
        "id": uuid4(),
        "at": record.at,
        "name": str(record.name),
        "user_id": record.user[:36] if record.user else None,
        "client_id": record.client[:_LONGEST_CLIENT_ID] if record.client else None,
        "address": record.address or None,
        "browser": record.browser or None,
        "fields": json.dumps(record.fields, sort_keys=True),
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
    buffer: Buffer[Pending] = app.extensions[_BUFFER]
    return buffer.flush()


def _note(record: audit.Record) -> None:
    g.setdefault(_NOTED, []).append(pending(record))


def _is_ours(session: Session) -> bool:
    return has_app_context() and session is db.session() and not session.in_nested_transaction()


def write(connection: Connection) -> None:
    """Write what waits on the connection of a transaction that is about to be committed."""
    if events := g.get(_NOTED):
        add(connection, events)
        # Only here: what belongs to no transaction may have been rolled back.
        webhook_queue.add(connection, [event.record for event in events])


def written() -> None:
    """The transaction is committed."""
    g.pop(_NOTED, None)


def undone() -> None:
    """The transaction is rolled back: what it recorded did not happen."""
    if events := g.get(_NOTED):
        events[:] = [event for event in events if event.record.name.survives_rollback]


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


def _end_of_context(buffer: Buffer[Pending], fault: BaseException | None) -> None:
    events: list[Pending] = g.pop(_NOTED, [])
    left = [event for event in events if event.record.name.survives_rollback or fault is None]
    if left:
        buffer.put(left)
