"""SQLite databases of other servers, read without trusting them."""

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sso.imports.person import FileProblem

_MAGIC = b"SQLite format 3\0"
_LONGEST = 1024 * 1024  # bytes of a value, and of a row
MOST_ROWS = 2_000_000  # of one table
_STEPS = 100_000_000  # of SQLite's machine for one row
_COPY = 'is a server still using it? Make a copy: sqlite3 FILE ".backup COPY"'


def is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database. Raises `FileProblem`."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise FileProblem(f"{path} cannot be read: {error.strerror}") from None


class Database:
    """The tables of a file, with the columns that they have."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        connection.execute("PRAGMA trusted_schema = OFF")
        # No views, nor virtual tables: those may run code of the file.
        statement = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        self.columns = {name: self._columns(name) for (name,) in connection.execute(statement)}

    def _columns(self, table: str) -> list[str]:
        return [row[1] for row in self._connection.execute(f"PRAGMA table_info({_quoted(table)})")]

    def rows(self, table: str, names: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table, with those of these columns that it has."""
        existing = [name for name in names if name in self.columns.get(table, ())]
        if not existing:
            return
        listed = ", ".join(map(_quoted, existing))
        statement = f"SELECT {listed} FROM {_quoted(table)} LIMIT {MOST_ROWS + 1}"  # noqa: S608 (quoted names; no values)
        for number, row in enumerate(self._connection.execute(statement)):
            if number >= MOST_ROWS:
                raise FileProblem(f"{self._path}: {table} has more than {MOST_ROWS} rows")
            yield dict(zip(existing, row, strict=True))


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open a database to read it. Errors of SQLite in the block become `FileProblem`."""
    connection = None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        connection.set_progress_handler(lambda: 1, _STEPS)
        yield Database(path, connection)
    except (sqlite3.Error, OverflowError) as error:
        raise FileProblem(f"{path} cannot be read: {error}; {_COPY}") from None
    finally:
        if connection:
            connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
