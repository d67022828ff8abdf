"""PostgreSQL databases of other servers, read in a transaction that cannot write."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import conninfo

from sso.imports.foreign_tables import MOST_ROWS, Database, quoted
from sso.imports.person import FileProblem

_SCHEME = re.compile(r"postgres(ql)?(\+psycopg)?://")
_LONGEST = 100_000  # characters or bytes of a value; the rest is cut off
_AT_A_TIME = 100  # rows
_SECONDS = 10  # for the connection, unless the URL says otherwise
_PLAIN = ("bool", "int2", "int4", "int8")
_COLUMNS = """
    SELECT c.relname, a.attname, t.typname, t.typcategory::text
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE c.relkind IN ('r', 'p') AND pg_catalog.pg_table_is_visible(c.oid)
      AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    ORDER BY c.relname, a.attnum
    LIMIT 20000
"""


@dataclass(frozen=True)
class ServerUrl:
    """The URL of a database; `str()` is what messages call it, without the password."""

    conninfo: str = field(repr=False)
    name: str

    def __str__(self) -> str:
        return self.name


def is_url(text: str) -> bool:
    """Return whether a text is the URL of a PostgreSQL database."""
    return _SCHEME.match(text) is not None


def parsed(text: str) -> ServerUrl:
    """Parse such a URL. Raises `FileProblem`, without any part of it: it may have a password."""
    url = _SCHEME.sub("postgresql://", text, count=1)
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise FileProblem(
            "the URL cannot be read; give postgresql://USER@HOST/DATABASE, with % and two digits "
            "for special characters"
        ) from None
    parts.setdefault("connect_timeout", _SECONDS)
    host = str(parts.get("host") or parts.get("hostaddr") or "this host")
    name = f"database {parts.get('dbname') or parts.get('user') or ''} at {host}"
    return ServerUrl(conninfo.make_conninfo("", **parts), name)


class _Server(Database):
    """The tables in the search path, which the URL may set: `?options=-csearch_path=NAME`."""

    def __init__(self, url: ServerUrl, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
        self._connection, self._number = connection, 0
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._types: dict[tuple[str, str], tuple[str, str]] = {}
        columns: dict[str, list[str]] = {}
        for table, column, kind, category in connection.execute(_COLUMNS):
            columns.setdefault(table, []).append(column)
            self._types[table, column] = kind, category
        super().__init__(str(url), columns)

    def _select(self, table: str, columns: list[str], by: str) -> Iterator[tuple[Any, ...]]:
        listed = ", ".join(self._expression(table, column) for column in columns)
        key = quoted(by)
        order = f'WHERE {key} IS NOT NULL ORDER BY {key}::text COLLATE "C"' if by else ""
        statement = f"SELECT {listed} FROM {quoted(table)} {order} LIMIT {MOST_ROWS + 1}"  # noqa: S608 (quoted names; no values)
        self._number += 1
        with self._connection.cursor(name=f"rows_{self._number}") as cursor:
            cursor.itersize = _AT_A_TIME
            yield from cursor.execute(statement.encode())

    def _expression(self, table: str, column: str) -> str:
        """Return what selects a column, cut off: as SQLite has it, or as a text."""
        kind, category = self._types[table, column]
        name = quoted(column)
        if kind in _PLAIN:
            return name
        if kind == "bytea":
            return f"pg_catalog.substring({name}, 1, {_LONGEST})"
        value = f"pg_catalog.to_json({name})" if category == "A" else name
        return f"pg_catalog.left({value}::text, {_LONGEST})"


@contextmanager
def opened(url: ServerUrl) -> Iterator[Database]:
    """Connect to a database to read it. Errors of PostgreSQL in the block become `FileProblem`."""
    try:
        with psycopg.connect(
            url.conninfo, prepare_threshold=None, client_encoding="utf8"
        ) as connection:
            yield _Server(url, connection)
    except (psycopg.Error, UnicodeDecodeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        why = lines[0][:300]
        raise FileProblem(f"{url} cannot be read: {why}") from None
