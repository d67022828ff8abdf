"""Runs statements that were built once, when their module was imported.

For the places that every sign-in passes. Such a statement selects columns instead of entities and
runs on the request's own connection, in the session's transaction; the ORM has no part in it, and
the time that goes into building a query and loading entities is saved.
"""

from typing import Any, cast

from sqlalchemy import Executable, Row, Table

from sso import database
from sso.extensions import db
from sso.models import Base


def table(model: type[Base]) -> Table:
    """The table of a model."""
    return cast(Table, model.__table__)


def read(statement: Executable, values: dict[str, Any]) -> Row[Any] | None:
    """The first row of a SELECT that is all its request asks: no session, no transaction."""
    with database.reader().connect() as connection:
        return connection.execute(statement, values).first()


def first(statement: Executable, values: dict[str, Any]) -> Row[Any] | None:
    """The first row that the statement gives with these values of its parameters."""
    return db.session.connection().execute(statement, values).first()


def run(statement: Executable, values: dict[str, Any]) -> None:
    """Run a statement that gives no rows."""
    db.session.connection().execute(statement, values)
