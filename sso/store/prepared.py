"""Core statements of the hot paths: compiled once, and run by the driver's own cursor.

For each execution SQLAlchemy builds a context and a result, and psycopg describes every column for
it. That costs more than SQLite needs for the statement, and a code exchange has three of them. A
statement runs on the connection that is passed, and gives labelled columns. What writes begins a
transaction there; what reads needs none.
`tracing.observers` see each one, as SQLAlchemy's events do not.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, Dialect, Executable, Select, Table
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from sso.database import dialects, postgresql
from sso.extensions import Base
from sso.observability import tracing

Row = dict[str, Any]
Convert = Callable[[Any], Any]
Record = TypeVar("Record")


def table(model: type[Base]) -> Table:
    """The table of a model."""
    return cast(Table, model.__table__)


def columns(kind: type, source: Table, prefix: str = "") -> list[ColumnElement[Any]]:
    """The columns of a table that a dataclass has as fields, labelled with a prefix."""
    names = [field.name for field in fields(kind) if field.name in source.c]
    return [source.c[name].label(prefix + name) for name in names]


def record(kind: Callable[..., Record], row: Row, prefix: str = "", **more: Any) -> Record:
    """A dataclass, from the columns of a row that are labelled with a prefix, and more fields."""
    return kind(**{name: row[label] for name, label in _labels(kind, prefix, *more)}, **more)


@lru_cache
def _labels(kind: Any, prefix: str, *without: str) -> tuple[tuple[str, str], ...]:
    names = [field.name for field in fields(kind) if field.name not in without]
    return tuple((name, prefix + name) for name in names)


def first(connection: Connection, statement: Executable, values: Mapping[str, Any]) -> Row | None:
    """The first row that the statement gives, by label. Raises `SQLAlchemyError`."""
    prepared = _prepared(connection, statement, values)
    found = prepared.run(connection, values, _FETCH_ONE)
    if found is None:
        return None
    row = dict(zip(prepared.labels, found, strict=True))
    for label, read in prepared.readers:
        row[label] = read(row[label])
    return row


def changed(connection: Connection, statement: Executable, values: Mapping[str, Any]) -> bool:
    """Run a statement that writes one row at most; whether it did. Raises `SQLAlchemyError`."""
    if not connection.in_transaction():
        connection.begin()
    return _write(connection, statement, values)


def changed_at_once(
    connection: Connection, statement: Executable, values: Mapping[str, Any]
) -> bool:
    """As `changed`, for the last statement of a request: in autocommit it needs no transaction, and
    counts whatever follows.
    """
    driver = connection.connection.driver_connection
    if getattr(driver, "autocommit", None) is not True:  # SQLite's is never
        return changed(connection, statement, values)
    return _write(connection, statement, values)


def _write(connection: Connection, statement: Executable, values: Mapping[str, Any]) -> bool:
    if dialects.is_postgresql(connection):
        postgresql.note_write(connection)
    return bool(_prepared(connection, statement, values).run(connection, values, _ROWCOUNT) == 1)


class Prepared(NamedTuple):
    """The SQL for one kind of database, and how values are written for it and read from it."""

    sql: str
    names: tuple[str, ...]  # of the parameters, as the SQL has them
    is_positional: bool
    fixed: Mapping[str, Any]  # parameters that the statement itself gives a value
    writers: Mapping[str, Convert]
    labels: tuple[str, ...]
    readers: tuple[tuple[str, Convert], ...]

    def run(
        self, connection: Connection, values: Mapping[str, Any], take: Callable[[DBAPICursor], Any]
    ) -> Any:
        """What is taken from the cursor. The caller has begun the transaction."""
        given = {**self.fixed, **values}
        for name, write in self.writers.items():
            given[name] = write(given[name])
        parameters = [given[name] for name in self.names] if self.is_positional else given
        if not tracing.observers:
            return self._execute(connection, parameters, take)
        with ExitStack() as stack:
            for observe in tracing.observers:
                stack.enter_context(observe(connection.engine, self.sql, parameters))
            return self._execute(connection, parameters, take)

    def _execute(
        self, connection: Connection, parameters: Any, take: Callable[[DBAPICursor], Any]
    ) -> Any:
        driver, cursor = connection.connection, None
        try:
            cursor = driver.cursor()
            cursor.execute(self.sql, parameters)
            found = take(cursor)
        except Exception as error:
            raise _as_sqlalchemys(connection, self.sql, cursor, error) from error
        cursor.close()
        return found


_FETCH_ONE, _ROWCOUNT = methodcaller("fetchone"), attrgetter("rowcount")


def _as_sqlalchemys(
    connection: Connection, sql: str, cursor: DBAPICursor | None, error: Exception
) -> BaseException:
    """SQLAlchemy's exception for a driver's; a connection that is gone is invalidated.

    Without the values: exceptions go to the log.
    """
    dialect = connection.dialect
    base = dialect.loaded_dbapi.Error
    is_gone = isinstance(error, base) and (
        dialect.is_disconnect(error, connection.connection, cursor) or postgresql.is_lost(error)
    )
    made = DBAPIError.instance(
        sql,
        None,
        error,
        base,
        hide_parameters=True,
        connection_invalidated=is_gone,
        dialect=dialect,
    )
    if is_gone:
        connection.invalidate(error)
    elif cursor is not None:
        cursor.close()
    return cast(BaseException, made)


_made: dict[tuple[str, Executable], Prepared] = {}


def _prepared(connection: Connection, statement: Executable, values: Mapping[str, Any]) -> Prepared:
    key = connection.dialect.name, statement
    if (found := _made.get(key)) is None:
        found = _made[key] = compiled(statement, connection.dialect, values)
    return found


def compiled(statement: Executable, dialect: Dialect, values: Mapping[str, Any]) -> Prepared:
    """What SQLAlchemy makes of a statement, to be run with values of these names.

    Raises `TypeError` for a statement that needs more than that.
    """
    # `Executable` promises less than all statements have.
    made = statement.compile(dialect=dialect, column_keys=list(values))  # type: ignore[attr-defined]
    assert isinstance(made, SQLCompiler)
    if made.insert_prefetch or made.update_prefetch or made.post_compile_params:
        raise TypeError("defaults made by Python, and lists of any length, are not for here")
    selected = statement.selected_columns.items() if isinstance(statement, Select) else ()
    types = [(label, column.type.dialect_impl(dialect)) for label, column in selected]
    readers = [(label, kind.result_processor(dialect, None)) for label, kind in types]
    writers = {name: _writer(bound.type, dialect) for bound, name in made.bind_names.items()}
    return Prepared(
        made.string,
        tuple(made.positiontup or ()),
        made.positional,
        {name: value for name, value in made.params.items() if name not in values},
        {name: write for name, write in writers.items() if write},
        tuple(label for label, _ in types),
        tuple((label, read) for label, read in readers if read),
    )


def _writer(kind: TypeEngine[Any], dialect: Dialect) -> Convert | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)
