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

from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    Executable,
    Insert,
    Select,
    Table,
    insert,
    inspect,
)
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import make_transient_to_detached
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from sso.database import dialects, postgresql
from sso.extensions import Base, db
from sso.observability import tracing

Row = dict[str, Any]
Convert = Callable[[Any], Any]
Record = TypeVar("Record")


def table(model: type[Base]) -> Table:
    """Return the table of a model."""
    return cast(Table, model.__table__)


def columns(kind: type, source: Table, prefix: str = "") -> list[ColumnElement[Any]]:
    """Return the columns of a table that a dataclass has as fields, labelled with a prefix."""
    names = [field.name for field in fields(kind) if field.name in source.c]
    return [source.c[name].label(prefix + name) for name in names]


def record(kind: Callable[..., Record], row: Row, prefix: str = "", **more: Any) -> Record:
    """Make a dataclass from the columns of a row with this prefix, and from more fields."""
    return kind(**{name: row[label] for name, label in _labels(kind, prefix, *more)}, **more)


@lru_cache
def _labels(kind: Any, prefix: str, *without: str) -> tuple[tuple[str, str], ...]:
    names = [field.name for field in fields(kind) if field.name not in without]
    return tuple((name, prefix + name) for name in names)


def first(connection: Connection, statement: Executable, values: Mapping[str, Any]) -> Row | None:
    """Return the first row that the statement selects, by label. Raises `SQLAlchemyError`."""
    prepared = _prepared(connection, statement, values)
    columns = prepared.run(connection, values, _FETCH_ONE)
    if columns is None:
        return None
    row = dict(zip(prepared.labels, columns, strict=True))
    for label, reader in prepared.readers:
        row[label] = reader(row[label])
    return row


def changed(connection: Connection, statement: Executable, values: Mapping[str, Any]) -> bool:
    """Run a statement that writes at most one row; return whether it wrote one.

    Raises `SQLAlchemyError`.
    """
    if not connection.in_transaction():
        connection.begin()
    return _write(connection, statement, values)


def changed_at_once(
    connection: Connection, statement: Executable, values: Mapping[str, Any]
) -> bool:
    """Do as `changed` for the last statement of a request: in autocommit it needs no transaction,
    and is committed at once.
    """
    driver = connection.connection.driver_connection
    if getattr(driver, "autocommit", None) is not True:  # SQLite's is never
        return changed(connection, statement, values)
    return _write(connection, statement, values)


def add(entry: Base) -> None:
    """Insert a new object of a model, in the transaction of the session, which then has it.

    It costs a third of a flush by the ORM. Other changes of the session are written before it.
    """
    db.session.flush()
    inserted = _inserted(type(entry))
    state, values = vars(entry), {}
    for key, name, default in inserted.columns:
        if key not in state:
            set_committed_value(entry, key, default(None) if default else None)
        values[name] = state[key]
    changed(db.session.connection(), inserted.statement, values)
    make_transient_to_detached(entry)
    db.session.add(entry)


class _Inserted(NamedTuple):
    """The INSERT of a model, and its columns: the attribute, the name and the default."""

    statement: Insert
    columns: tuple[tuple[str, str, Convert | None], ...]


@lru_cache
def _inserted(model: type[Base]) -> _Inserted:
    attributes = inspect(model).column_attrs
    columns = tuple((attribute.key, attribute.columns[0]) for attribute in attributes)
    return _Inserted(
        insert(table(model)),
        tuple((key, column.name, _default(column.default)) for key, column in columns),
    )


def _default(default: Any) -> Convert | None:
    """Return a function for a default by Python; SQLAlchemy's take the context as an argument."""
    if default is None:
        return None
    return cast(Convert, default.arg) if default.is_callable else lambda _: default.arg


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
        """Run the statement, and return what `take` reads from the cursor.

        The caller has begun the transaction.
        """
        named = {**self.fixed, **values}
        for name, write in self.writers.items():
            named[name] = write(named[name])
        parameters = [named[name] for name in self.names] if self.is_positional else named
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
            result = take(cursor)
        except Exception as error:
            raise _as_sqlalchemys(connection, self.sql, cursor, error) from error
        cursor.close()
        return result


_FETCH_ONE, _ROWCOUNT = methodcaller("fetchone"), attrgetter("rowcount")


def _as_sqlalchemys(
    connection: Connection, sql: str, cursor: DBAPICursor | None, error: Exception
) -> BaseException:
    """Return SQLAlchemy's exception for a driver's, and invalidate a lost connection.

    It does not have the values: exceptions go to the log.
    """
    dialect = connection.dialect
    base = dialect.loaded_dbapi.Error
    is_gone = isinstance(error, base) and (
        dialect.is_disconnect(error, connection.connection, cursor) or postgresql.is_lost(error)
    )
    exception = DBAPIError.instance(
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
    return cast(BaseException, exception)


_cache: dict[tuple[str, Executable], Prepared] = {}


def _prepared(connection: Connection, statement: Executable, values: Mapping[str, Any]) -> Prepared:
    key = connection.dialect.name, statement
    if (prepared := _cache.get(key)) is None:
        prepared = _cache[key] = compiled(statement, connection.dialect, values)
    return prepared


def compiled(statement: Executable, dialect: Dialect, values: Mapping[str, Any]) -> Prepared:
    """Compile a statement, to be run with values of these names.

    Raises `TypeError` for a statement that needs Python at each execution.
    """
    # All statements have `compile`, but `Executable` does not declare it.
    compiler = statement.compile(dialect=dialect, column_keys=list(values))  # type: ignore[attr-defined]
    assert isinstance(compiler, SQLCompiler)
    if compiler.insert_prefetch or compiler.update_prefetch or compiler.post_compile_params:
        raise TypeError("defaults made by Python, and lists of any length, are not for here")
    selected = statement.selected_columns.items() if isinstance(statement, Select) else ()
    types = [(label, column.type.dialect_impl(dialect)) for label, column in selected]
    readers = [(label, kind.result_processor(dialect, None)) for label, kind in types]
    writers = {name: _writer(bound.type, dialect) for bound, name in compiler.bind_names.items()}
    return Prepared(
        compiler.string,
        tuple(compiler.positiontup or ()),
        compiler.positional,
        {name: value for name, value in compiler.params.items() if name not in values},
        {name: write for name, write in writers.items() if write},
        tuple(label for label, _ in types),
        tuple((label, reader) for label, reader in readers if reader),
    )


def _writer(kind: TypeEngine[Any], dialect: Dialect) -> Convert | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)
