"""SQLite databases of other servers, read without trusting them."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sso.imports.foreign_tables import MOST_ROWS, Database, quoted
from sso.imports.person import FileProblem

_MAGIC = b"SQLite format 3\0"
_LONGEST = 1024 * 1024  # bytes of a value, and of a row
_STEPS = 500_000_000  # of SQLite's machine for one statement
_COPY = 'is a server still using it? Make a copy: sqlite3 FILE ".backup COPY"'


def is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database. Raises `FileProblem`."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise FileProblem(f"{path} cannot be read: {error.strerror}") from None


class _File(Database):
    """The tables of a file."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("BEGIN")  # one state for all tables
        # No views, nor virtual tables: those may run code of the file.
        statement = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        names = [name for (name,) in connection.execute(statement)]
        super().__init__(str(path), {name: self._columns(name) for name in names})

    def _columns(self, table: str) -> list[str]:
        return [row[1] for row in self._connection.execute(f"PRAGMA table_info({quoted(table)})")]

    def _select(self, table: str, columns: list[str], by: str) -> Iterator[tuple[Any, ...]]:
        listed = ", ".join(map(quoted, columns))
        order = f"WHERE {quoted(by)} IS NOT NULL ORDER BY CAST({quoted(by)} AS TEXT)" if by else ""
        statement = f"SELECT {listed} FROM {quoted(table)} {order} LIMIT {MOST_ROWS + 1}"  # noqa: S608 (quoted names; no values)
        return self._connection.execute(statement)


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open a database to read it. Errors of SQLite in the block become `FileProblem`."""
    connection = None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        connection.set_progress_handler(lambda: 1, _STEPS)
        yield _File(path, connection)
    except (sqlite3.Error, OverflowError) as error:
        raise FileProblem(f"{path} cannot be read: {error}; {_COPY}") from None
    finally:
        if connection:
            connection.close()
