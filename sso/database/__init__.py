"""Open the database, and make SQLite safe for several processes; `postgresql` has its own part."""

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from weakref import WeakSet

from flask import Flask, current_app
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from sso.database import dialects, postgresql
from sso.database.kept_connections import KeptConnections
from sso.extensions import db

logger = logging.getLogger("sso.database")


BUSY_TIMEOUT = 15_000  # milliseconds to wait for another process's write


def configure(app: Flask, database_url: str) -> None:
    """Set the engine's options before Flask-SQLAlchemy creates the engine."""
    app.config["SQLALCHEMY_DATABASE_URI"] = database_url
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite":
        app.config["SQLALCHEMY_ENGINE_OPTIONS"] = postgresql.engine_options(url)
    # The text of an exception goes to the log, but not the values of its statement.
    app.config.setdefault("SQLALCHEMY_ENGINE_OPTIONS", {})["hide_parameters"] = True


def prepare(app: Flask) -> None:
    """Register the event handlers of this application's engine, and its source of connections."""
    with app.app_context():
        engine = db.engine
    event.listen(engine, "connect", lambda *_: _connected.add(engine))
    event.listen(engine, "engine_disposed", _connected.discard)
    _prepare_engine(engine)
    if dialects.is_postgresql(engine):
        kept: KeptConnections = postgresql.KeptSessions(engine)
    else:
        kept = KeptConnections(engine)
    app.extensions["sso.kept_connections"] = kept
    app.extensions["sso.connection"] = kept.take
    app.teardown_appcontext(end_session)  # runs before Flask-SQLAlchemy's own


def _prepare_engine(engine: Engine) -> None:
    if dialects.is_postgresql(engine):
        postgresql.prepare(engine)
    else:
        _prepare_sqlite(engine)


def connection() -> AbstractContextManager[Connection]:
    """Return a connection for the statements of one request.

    Changes that are not committed are rolled back.
    """
    connection: AbstractContextManager[Connection] = current_app.extensions["sso.connection"]()
    return connection


def session_connection() -> Connection:
    """Write the session's pending changes, and return the connection of its transaction."""
    db.session.flush()
    return db.session.connection()


@contextmanager
def reading() -> Iterator[Connection]:
    """Return the connection of the session, if this request has begun one; else one without the
    ORM.

    A session that only reads would cost 10 % of the sign-in page. Begin none within the block: on
    PostgreSQL the request would hold two connections.
    """
    if db.session.registry.has():
        yield session_connection()
    else:
        with connection() as without_session:
            yield without_session


def end_session(_: BaseException | None = None) -> None:
    """End the transaction of a request. The answer is valid even if the connection is gone."""
    if not db.session.registry.has():
        return  # userinfo, for example, needs none
    try:
        db.session.remove()
    except SQLAlchemyError:
        logger.info("a connection was gone before the end of its transaction")
        db.session().invalidate()


# Engines that have opened a connection since they were created or disposed of.
_connected: WeakSet[Engine] = WeakSet()


def _forget_connections() -> None:
    """Drop the parent's connections in a forked process: the answers to both would be mixed up."""
    for engine in list(_connected):  # the others may share their pools: half a megabyte each
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget_connections)


def open_engine(database_url: str | URL, **options: Any) -> Engine:
    """Return an engine besides the application's; the caller disposes of it."""
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite":
        options["connect_args"] = postgresql.connect_args(url)
    engine = create_engine(url, hide_parameters=True, **options)
    _prepare_engine(engine)
    return engine


def _prepare_sqlite(engine: Engine) -> None:
    """Set WAL and foreign keys, and let every transaction that writes begin with BEGIN IMMEDIATE.

    Reads before the first write see the rows that are committed at that moment, as under
    PostgreSQL's READ COMMITTED. A write waits for its turn; a read transaction that begins to write
    would fail with "database is locked". The driver does this for statements that begin with
    INSERT, UPDATE, DELETE or REPLACE, but not for DDL (migrations begin by themselves), savepoints
    and WITH, which this package therefore does not use.
    """

    @event.listens_for(engine, "do_connect")
    def create_private_file(_dialect: object, _record: object, _args: object, _named: Any) -> None:
        # SQLite would create the file with the umask, often readable for everybody.
        path = engine.url.database
        if path and path != ":memory:" and "uri" not in engine.url.query:
            with suppress(OSError):  # the file exists, or SQLite reports the error
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
    """Switch to WAL, and try again if another process switches a new file at the same moment.

    SQLite itself does not wait in this case.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


_SNAPSHOT: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """Return a connection whose reads all see the database at one moment, while others write."""
    is_postgresql = dialects.is_postgresql(engine)
    if is_postgresql:
        engine = engine.execution_options(**_SNAPSHOT)
    with engine.connect() as connection:
        if not is_postgresql:
            connection.exec_driver_sql("BEGIN")
        yield connection


@contextmanager
def session_snapshot() -> Iterator[None]:
    """Let all reads of the session see the database at one moment; roll back at the end."""
    db.session.rollback()
    if dialects.is_postgresql():
        db.session.connection(execution_options=_SNAPSHOT)
    else:
        db.session.connection().exec_driver_sql("BEGIN")
    try:
        yield
    finally:
        db.session.rollback()
