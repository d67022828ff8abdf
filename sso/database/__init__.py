"""How the database is opened: SQLite made safe for several processes; PostgreSQL in its file.

Connections to SQLite wait outside the pool, one for each concurrent request. Taking one from the
pool and giving it back costs more than the statement of userinfo: 13 % of the CPU of that request,
and 5 % of a code exchange. PostgreSQL restarts and fails over, and needs the pool's care.
"""

import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any
from weakref import WeakSet

from flask import Flask, current_app
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from sso.database import postgresql
from sso.extensions import db
from sso.process import concurrency

logger = logging.getLogger("sso.database")


class KeptConnections:
    """Those of one engine. When it is disposed of, they are closed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._idle: deque[Connection] = deque()
        self._process = os.getpid()
        self._inherited: list[Connection] = []
        event.listen(engine, "engine_disposed", self._close)

    @contextmanager
    def take(self) -> Iterator[Connection]:
        """One of them, for the block. What is not committed is rolled back."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._engine.connect()
            self._process = os.getpid()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if connection.in_transaction():
            try:
                connection.rollback()
            except SQLAlchemyError:  # the answer stands
                logger.info("a connection was gone before the end of its transaction")
                connection.invalidate()
        if connection.invalidated or len(self._idle) >= concurrency.MAX_CONCURRENT:
            connection.close()
        else:
            self._idle.append(connection)

    def _close(self, _: Engine) -> None:
        if os.getpid() != self._process:  # forked: SQLite must not even close its parent's
            self._process = os.getpid()
            self._inherited += self._idle
            self._idle.clear()
        while self._idle:
            connection = self._idle.pop()
            connection.detach()
            connection.close()


BUSY_TIMEOUT = 15_000  # milliseconds to wait for another process's write


def configure(app: Flask, database_url: str) -> None:
    """Set the engine's options before Flask-SQLAlchemy makes it."""
    app.config["SQLALCHEMY_DATABASE_URI"] = database_url
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite":
        app.config["SQLALCHEMY_ENGINE_OPTIONS"] = postgresql.engine_options(url)
    # An exception's text goes to the log; the values of its statement don't.
    app.config.setdefault("SQLALCHEMY_ENGINE_OPTIONS", {})["hide_parameters"] = True


def prepare(app: Flask) -> None:
    """Hook the engine of this application."""
    with app.app_context():
        engine = db.engine
    event.listen(engine, "connect", lambda *_: _connected.add(engine))
    event.listen(engine, "engine_disposed", _connected.discard)
    if engine.dialect.name == "sqlite":
        _prepare_sqlite(engine)
        kept = KeptConnections(engine)
        app.extensions["sso.connection"] = kept.take
    else:
        postgresql.prepare(engine)
        app.extensions["sso.connection"] = partial(postgresql.connection, engine)
    app.teardown_appcontext(end_session)  # goes before Flask-SQLAlchemy's own


def connection() -> AbstractContextManager[Connection]:
    """A connection for the statements of one request. What is not committed is rolled back."""
    found: AbstractContextManager[Connection] = current_app.extensions["sso.connection"]()
    return found


def session_connection() -> Connection:
    """The connection of the session's transaction, once what waits in the session is written."""
    db.session.flush()
    return db.session.connection()


@contextmanager
def reading() -> Iterator[Connection]:
    """The connection of the session, if this request has begun one; else one without the ORM.

    To begin a session only to read costs 10 % of the sign-in page. Begin none within the block:
    on PostgreSQL the request would hold two connections.
    """
    if db.session.registry.has():
        yield session_connection()
    else:
        with connection() as found:
            yield found


def end_session(_: BaseException | None = None) -> None:
    """End the transaction of a request. The answer is valid even if the connection is gone."""
    if not db.session.registry.has():
        return  # userinfo, for example, needs none
    try:
        db.session.remove()
    except SQLAlchemyError:
        logger.info("a connection was gone before the end of its transaction")
        db.session().invalidate()


# Engines that have opened a connection since they were made or disposed of.
_connected: WeakSet[Engine] = WeakSet()


def _forget_connections() -> None:
    """A forked process must not use its parent's connections: their answers would mix."""
    for engine in list(_connected):  # the others share their pools: half a megabyte each
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget_connections)


def open_engine(database_url: str | URL, **options: Any) -> Engine:
    """An engine beside the application's; the caller disposes of it."""
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite":
        options["connect_args"] = postgresql.connect_args(url)
    engine = create_engine(url, hide_parameters=True, **options)
    if engine.dialect.name == "sqlite":
        _prepare_sqlite(engine)
    else:
        postgresql.prepare(engine)
    return engine


def _prepare_sqlite(engine: Engine) -> None:
    """WAL and foreign keys; and every transaction that writes begins with BEGIN IMMEDIATE.

    Reads before the first write see what is committed at their moment, as under PostgreSQL's
    READ COMMITTED; a write waits for its turn instead of failing with "database is locked",
    which is what a read transaction that turns into a writing one gets. The driver sees to it, for
    statements that begin with INSERT, UPDATE, DELETE or REPLACE; not for DDL (migrations begin by
    themselves), savepoints and WITH, which this package therefore does without.
    """

    @event.listens_for(engine, "do_connect")
    def create_private_file(_dialect: object, _record: object, _args: object, named: Any) -> None:
        # SQLite would create the file with the umask, often readable for everybody.
        path = engine.url.database
        if path and path != ":memory:" and "uri" not in engine.url.query:
            with suppress(OSError):  # it is there, or SQLite says what is wrong
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    @event.listens_for(engine, "connect")
    def set_pragmas(connection: "sqlite3.Connection", _record: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT}")
        _switch_to_wal(cursor)
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()


def _switch_to_wal(cursor: "sqlite3.Cursor") -> None:
    """SQLite does not wait when two processes open a new file and switch at once."""
    last = time.monotonic() + BUSY_TIMEOUT / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > last:
                raise
            time.sleep(0.02)
        else:
            return


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection whose reads all see the database of one moment, while others write."""
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        yield connection


@contextmanager
def session_snapshot() -> Iterator[None]:
    """Let all reads of the session see one state of the database; roll back at the end."""
    db.session.rollback()
    if db.engine.dialect.name == "postgresql":
        db.session.connection(
            execution_options={"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        )
    else:
        db.session.connection().exec_driver_sql("BEGIN")
    try:
        yield
    finally:
        db.session.rollback()
