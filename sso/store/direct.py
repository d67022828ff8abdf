"""A statement that SQLAlchemy wrote once, run by the driver's own cursor.

For each execution SQLAlchemy looks up what it has compiled, and builds a context and a result. That
takes longer than SQLite needs for the statement, and each sign-in has a dozen of them.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

from sqlalchemy import Connection, Dialect, Executable, Select
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

Row = tuple[Any, ...]
Convert = Callable[[Any], Any]


class Direct(NamedTuple):
    """The SQL for one kind of database, and how values are written for it and read from it."""

    sql: str
    names: tuple[str, ...]  # of the parameters, as the SQL has them
    is_positional: bool
    fixed: Mapping[str, Any]  # parameters that the statement itself gives a value
    writers: Mapping[str, Convert]
    readers: tuple[tuple[int, Convert], ...]

    def first(self, connection: Connection, values: Mapping[str, Any]) -> Row | None:
        """The first row."""
        found = self._run(connection, values, _FETCH_ONE)
        if found is None:
            return None
        row = list(found)
        for place, read in self.readers:
            row[place] = read(row[place])
        return tuple(row)

    def changed(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """How many rows were written."""
        count: int = self._run(connection, values, _ROWCOUNT)
        return count

    def _run(
        self, connection: Connection, values: Mapping[str, Any], take: Callable[[DBAPICursor], Any]
    ) -> Any:
        """In the connection's transaction; it is the caller who has begun it.

        Raises what SQLAlchemy would raise.
        """
        given = {**self.fixed, **values}
        for name, write in self.writers.items():
            given[name] = write(given[name])
        parameters = [given[name] for name in self.names] if self.is_positional else given
        driver, cursor = connection.connection, None
        try:
            cursor = driver.cursor()
            cursor.execute(self.sql, parameters)
            found = take(cursor)
        except Exception as error:
            # Makes SQLAlchemy's exception of it, and lets go of a connection that is gone.
            connection._handle_dbapi_exception(error, self.sql, None, cursor, None)
        cursor.close()
        return found


_FETCH_ONE, _ROWCOUNT = methodcaller("fetchone"), attrgetter("rowcount")


def compiled(statement: Executable, dialect: Dialect, values: Mapping[str, Any]) -> Direct:
    """What SQLAlchemy makes of a statement, to be run with values of these names.

    Raises `TypeError` for a statement that needs more than that.
    """
    names = list(values)
    # `Executable` promises less than all statements have.
    made = statement.compile(dialect=dialect, column_keys=names)  # type: ignore[attr-defined]
    assert isinstance(made, SQLCompiler)
    if made.insert_prefetch or made.update_prefetch or made.post_compile_params:
        raise TypeError("defaults made by Python, and lists of any length, are not for here")
    columns = statement.selected_columns if isinstance(statement, Select) else ()
    types = [column.type.dialect_impl(dialect) for column in columns]
    readers = [(place, kind.result_processor(dialect, None)) for place, kind in enumerate(types)]
    writers = {name: _writer(bound.type, dialect) for bound, name in made.bind_names.items()}
    return Direct(
        made.string,
        tuple(made.positiontup or ()),
        made.positional,
        {name: value for name, value in made.params.items() if name not in values},
        {name: write for name, write in writers.items() if write},
        tuple((place, read) for place, read in readers if read),
    )


def _writer(kind: TypeEngine[Any], dialect: Dialect) -> Convert | None:
    return kind.dialect_impl(dialect).bind_processor(dialect)
