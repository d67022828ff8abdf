"""Runs statements that were built once, when their module was imported.

For the places that every sign-in passes. Such a statement selects columns instead of entities, and
the ORM has no part in it: the time that goes into building a query and loading entities is saved.
It runs on the connection that `on` names, else on that of the ORM's session, in its transaction;
by the driver's own cursor (see `direct`), unless somebody listens to SQLAlchemy's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from sqlalchemy import Connection, Executable, Table

from sso import database
from sso.extensions import Base, db
from sso.store.direct import Direct, Row, compiled

_named: ContextVar[Connection | None] = ContextVar("connection", default=None)


def table(model: type[Base]) -> Table:
    """The table of a model."""
    return cast(Table, model.__table__)


@contextmanager
def on(connection: Connection) -> Iterator[None]:
    """Run the statements of the block on this connection; the ORM's session is not to be used."""
    token = _named.set(connection)
    try:
        yield
    finally:
        _named.reset(token)


def connection() -> Connection:
    """The connection of the transaction that is under way."""
    named = _named.get()
    if named is not None:
        return named
    db.session.flush()  # as the session does before a statement of its own
    return db.session.connection()


def read(statement: Executable, values: dict[str, Any]) -> Row | None:
    """The first row of a SELECT that is all its request asks: no session, no transaction."""
    with database.reader().connect() as connection:
        return _first(connection, statement, values)


def first(statement: Executable, values: dict[str, Any]) -> Row | None:
    """The first row that the statement gives with these values of its parameters."""
    return _first(connection(), statement, values)


def changed(statement: Executable, values: dict[str, Any]) -> bool:
    """Run a statement that writes one row at most; whether it did."""
    on = connection()
    if _is_watched(on):
        return on.execute(statement, values).rowcount == 1
    return _direct(on, statement, values).changed(on, values) == 1


def run(statement: Executable, values: dict[str, Any]) -> None:
    """Run a statement that gives no rows."""
    changed(statement, values)


def _first(on: Connection, statement: Executable, values: dict[str, Any]) -> Row | None:
    if _is_watched(on):
        found = on.execute(statement, values).first()
        return tuple(found) if found else None
    return _direct(on, statement, values).first(on, values)


def _is_watched(on: Connection) -> bool:
    """Whether somebody wants to see each statement (see `tracing`)."""
    return bool(on.dispatch.before_cursor_execute)


_made: dict[tuple[str, Executable], Direct] = {}


def _direct(on: Connection, statement: Executable, values: dict[str, Any]) -> Direct:
    key = on.dialect.name, statement
    if (found := _made.get(key)) is None:
        found = _made[key] = compiled(statement, on.dialect, values)
    return found
