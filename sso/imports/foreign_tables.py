"""Tables of another server's database, of whatever kind, read without trusting them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from sso.imports.person import FileProblem

MOST_ROWS = 2_000_000  # of one table
MOST_OF_ONE = 2_000  # rows of one kind that belong to one row
_MOST_HELD = 32 * 1024 * 1024  # characters and bytes of rows that are in memory together

Row = dict[str, Any]


class Reference(NamedTuple):
    """A table whose column `key` names rows of another one."""

    table: str
    columns: Collection[str]
    key: str


class Database(ABC):
    """A database that is open. `columns`: of each table; `origin`: what messages call it."""

    def __init__(self, origin: str, columns: dict[str, list[str]]) -> None:
        self.origin, self.columns = origin, columns

    def rows(self, table: str, names: Collection[str], *, by: str = "") -> Iterator[Row]:
        """Yield the rows of a table, with those of these columns that it has.

        `by`: a column by whose texts they are sorted; rows without a value are left out then.
        Raises `FileProblem`.
        """
        existing = [name for name in names if name in self.columns.get(table, ())]
        if not existing or (by and by not in existing):
            return
        for number, values in enumerate(self._select(table, existing, by)):
            if number >= MOST_ROWS:
                raise FileProblem(f"{self.origin}: {table} has more than {MOST_ROWS} rows")
            yield dict(zip(existing, values, strict=True))

    def few(self, table: str, names: Collection[str], most: int, things: str) -> list[Row]:
        """Return all rows of a table that has few. Raises `FileProblem`, which names `things`."""
        held = _Held(f"{self.origin} has", most, things)
        for row in self.rows(table, names):
            held.add(row)
        return held.rows

    @abstractmethod
    def _select(self, table: str, columns: list[str], by: str) -> Iterator[tuple[Any, ...]]:
        """Yield values of columns that the table has, `MOST_ROWS` and one more at most."""


class _Held:
    """Rows that are in memory together, no more than that."""

    def __init__(self, who: str, most: int, things: str) -> None:
        self.rows: list[Row] = []
        self._size, self._who, self._most, self._things = 0, who, most, things

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self._size += sum(len(v) for v in row.values() if isinstance(v, str | bytes))
        if len(self.rows) > self._most or self._size > _MOST_HELD:
            how_many = f"more than {self._most}" if len(self.rows) > self._most else "too large"
            raise FileProblem(f"{self._who} {how_many} {self._things}")


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def key_of(value: Any) -> str:
    """Return the text of a key, by which databases sort."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def joined(
    database: Database, of_rows: Reference, others: Mapping[str, Reference]
) -> Iterator[tuple[Row, dict[str, list[Row]]]]:
    """Yield each row of a table, and the rows of others that name it, by the names of `others`.

    All are sorted by their keys, so only one row's are in memory. Raises `FileProblem`.
    """
    children = {name: _Children(database, reference) for name, reference in others.items()}
    before = ""
    for row in database.rows(of_rows.table, of_rows.columns, by=of_rows.key):
        key = key_of(row[of_rows.key])
        if key < before:  # rows would be left out
            raise FileProblem(f"{database.origin}: {of_rows.table} has IDs that are not UTF-8")
        before = key
        yield row, {name: child.of(key) for name, child in children.items()}


class _Children:
    """The rows of a reference, which are asked for in the order of their keys."""

    def __init__(self, database: Database, reference: Reference) -> None:
        self._rows = database.rows(reference.table, reference.columns, by=reference.key)
        self._key, self._things = reference.key, f"rows in {reference.table} for one row"
        self._who = f"{database.origin} has"
        self._next = next(self._rows, None)

    def of(self, key: str) -> list[Row]:
        held = _Held(self._who, MOST_OF_ONE, self._things)
        while self._next is not None and (current := key_of(self._next[self._key])) <= key:
            if current == key:
                held.add(self._next)
            self._next = next(self._rows, None)
        return held.rows
