"""Writes audit events into the database: with their transaction, or soon after in batches.

An event waits in its application context. The next commit takes it along by one statement; what
is left at the context's end goes to a buffer of the process, which a thread writes within a
second, on a connection of its own, so that no request waits for it.
"""

import atexit
import json
import logging
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from flask import Flask, g, has_app_context
from sqlalchemy import Connection, Engine, Uuid, column, event, insert, table
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from sso import audit
from sso.extensions import UtcDateTime, db

logger = logging.getLogger("sso.audit")

MOST = 10_000  # events that wait in a process; beyond that the oldest are on the log alone
AT_ONCE = 500
PAUSE = 0.5  # seconds in which events gather
PAUSE_AFTER_FAULT = 5.0
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


class Buffer:
    """Events of one process that belong to no transaction, on their way to the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[audit.Record] = deque(maxlen=MOST)
        self._lost = 0
        self._state, self._writing = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def put(self, events: Sequence[audit.Record]) -> None:
        with self._state:
            self._lost += max(0, len(self._waiting) + len(events) - MOST)
            self._waiting.extend(events)
            # A thread lives for one burst: an idle process has none, and none outlives a fork.
            if self._thread is None or self._process != os.getpid():
                self._process = os.getpid()
                self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
                self._thread.start()

    def flush(self) -> bool:
        """Write what waits. False if the database does not take it; then it goes on waiting."""
        with self._writing:
            while batch := self._take():
                try:
                    with self._engine.begin() as connection:
                        add(connection, batch)
                except SQLAlchemyError as error:
                    self._give_back(batch)
                    logger.error(
                        "audit events wait: the database does not take them (%s)",
                        type(error).__name__,
                    )
                    return False
            return True

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(PAUSE)
            if not self.flush():
                pause.wait(PAUSE_AFTER_FAULT)
            with self._state:
                if not self._waiting:
                    self._thread = None
                    return

    def _take(self) -> list[audit.Record]:
        with self._state:
            if self._lost:
                logger.error("%d audit events are on the log alone", self._lost)
                self._lost = 0
            return [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]

    def _give_back(self, batch: list[audit.Record]) -> None:
        with self._state:
            fits = max(0, MOST - len(self._waiting))
            self._lost += max(0, len(batch) - fits)
            self._waiting.extendleft(reversed(batch[-fits:] if fits else []))


_buffers: WeakSet[Buffer] = WeakSet()
_BUFFER = "sso.audit.buffer"


def init_app(app: Flask, engine: Engine) -> None:
    """Record the events of this application; those of no transaction are written by `engine`.

    It has no pool: nothing stays open between two bursts, and a fork shares nothing.
    """
    buffer = Buffer(engine)
    _buffers.add(buffer)
    app.extensions[_BUFFER] = buffer
    app.extensions[audit.EXTENSION] = _note
    app.teardown_appcontext(lambda fault: _end_of_context(buffer, fault))


def flush(app: Flask) -> bool:
    """Write now what waits in this process."""
    buffer: Buffer = app.extensions[_BUFFER]
    return buffer.flush()


def _note(noted: audit.Record) -> None:
    g.setdefault(_NOTED, []).append(noted)


def _is_ours(session: Session) -> bool:
    return has_app_context() and session is db.session() and not session.in_nested_transaction()


def write(connection: Connection) -> None:
    """Write what waits on the connection of a transaction that is about to be committed."""
    if pending := g.get(_NOTED):
        add(connection, pending)


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
        write(session.connection())


@event.listens_for(db.session, "after_commit")
def _written(session: Session) -> None:
    if _is_ours(session):
        written()


@event.listens_for(db.session, "after_rollback")
def _undone(session: Session) -> None:
    if _is_ours(session):
        undone()


def _end_of_context(buffer: Buffer, fault: BaseException | None) -> None:
    pending: list[Any] = g.pop(_NOTED, [])
    left = [one for one in pending if one.name.survives_rollback or fault is None]
    if left:
        buffer.put(left)


@atexit.register
def _flush_all() -> None:
    for buffer in list(_buffers):
        buffer.flush()
