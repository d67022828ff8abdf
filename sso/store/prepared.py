"""Runs statements that were built once, when their module was imported.

For the places that every sign-in passes. Such a statement selects columns instead of entities, and
the ORM has no part in it: the time that goes into building a query and loading entities is saved.
It runs on the connection that `on` names, else on that of the ORM's session, in its transaction.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from sqlalchemy import Connection, Executable, Row, Table

from sso import database
from sso.extensions import db
from sso.models import Base

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


def read(statement: Executable, values: dict[str, Any]) -> Row[Any] | None:
    """The first row of a SELECT that is all its request asks: no session, no transaction."""
    with database.reader().connect() as connection:
        return connection.execute(statement, values).first()


def first(statement: Executable, values: dict[str, Any]) -> Row[Any] | None:
    """The first row that the statement gives with these values of its parameters."""
    return connection().execute(statement, values).first()


def changed(statement: Executable, values: dict[str, Any]) -> bool:
    """Run a statement that writes one row at most; whether it did."""
    return connection().execute(statement, values).rowcount == 1


def run(statement: Executable, values: dict[str, Any]) -> None:
    """Run a statement that gives no rows."""
    connection().execute(statement, values)
