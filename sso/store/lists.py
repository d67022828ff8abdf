"""Long lists: pages by keyset, lookup by a part of a name, statements about many rows.

A page begins after the last row of the previous page. So each page costs the same wherever it is,
and no row is skipped or repeated while rows are added and deleted.
"""

import base64
import binascii
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    CursorResult,
    Delete,
    Row,
    Select,
    Update,
    func,
    literal,
    select,
    tuple_,
)
from sqlalchemy.orm import InstrumentedAttribute

from sso.database import dialects
from sso.extensions import Base, db

T = TypeVar("T")
Entity = TypeVar("Entity", bound=Base)
PAGE = 50
MOST = 2000  # characters of a cursor
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BadCursor(ValueError):
    """The cursor comes from no page, or from one of another list."""


@dataclass(frozen=True)
class Slice(Generic[T]):
    """One page of a list, and the cursors of the next and the previous page, if they exist."""

    rows: Sequence[T]
    next: str | None = None
    previous: str | None = None


@dataclass(frozen=True)
class Order:
    """The columns that a list is ordered by. Together they are unique, and none is NULL.

    All have one direction, so that an index on them serves both ways. `is_key_first`: the values of
    the only column are selected first, from an index alone, and then their rows.
    `is_of_beginnings`: the first column is ordered as `dialects.begins` needs it, and its index.
    """

    columns: tuple[InstrumentedAttribute[Any] | ColumnElement[Any], ...]
    is_descending: bool = False
    is_key_first: bool = False
    is_of_beginnings: bool = False

    @property
    def reversed(self) -> "Order":
        """The other direction of the same index."""
        return replace(self, is_descending=not self.is_descending)

    def page(self, statement: Select[T], cursor: str | None, size: int = PAGE) -> Slice[T]:
        """Return one page of the selected rows; without a cursor, the first one.

        Raises `BadCursor`.
        """
        backward, values = self.read(cursor) if cursor else (False, ())
        descending = self.is_descending != backward
        if values:
            is_beyond = self._is_beyond(values, descending)
            statement = statement.where(dialects.decisive(is_beyond))
        ordered = self._ordered(descending)
        limited = statement.order_by(*ordered).limit(size + 1)
        if self.is_key_first:
            keys = db.session.scalars(limited.with_only_columns(self.columns[0])).all()
            row = statement.column_descriptions[0]["entity"]
            limited = select(row).where(self.columns[0].in_(keys)).order_by(*ordered)
        rows = list(db.session.scalars(limited))
        more, rows = len(rows) > size, rows[:size]
        if backward:
            rows.reverse()
        has_next = bool(rows) if backward else more
        has_previous = more if backward else bool(rows and values)
        return Slice(
            rows,
            self.cursor(rows[-1]) if has_next else None,
            self.cursor(rows[0], backward=True) if has_previous else None,
        )

    def _is_beyond(self, values: Sequence[Any], descending: bool) -> ColumnElement[bool]:
        columns = zip(values, self.columns, strict=True)
        place: Any = [literal(value, column.type) for value, column in columns]
        keys: Any = self.columns
        if self.is_of_beginnings and (dialects.is_postgresql() or len(keys) == 1):
            return dialects.is_beyond(keys, place, descending=descending)
        # SQLite uses no index to compare row values of one column.
        keys, place = (keys[0], place[0]) if len(place) == 1 else (tuple_(*keys), tuple_(*place))
        is_beyond: ColumnElement[bool] = keys < place if descending else keys > place
        return is_beyond

    def _ordered(self, descending: bool) -> list[ColumnElement[Any]]:
        if self.is_of_beginnings:
            first = dialects.order_of_beginnings(self.columns[0], descending=descending)
            return [first, *self._plainly_ordered(self.columns[1:], descending)]
        return self._plainly_ordered(self.columns, descending)

    def _plainly_ordered(self, columns: Sequence[Any], descending: bool) -> list[Any]:
        return [column.desc() if descending else column.asc() for column in columns]

    def page_of_several(
        self, statements: Sequence[Select[T]], cursor: str | None, size: int = PAGE
    ) -> Slice[T]:
        """Return one page of the rows that any of these statements selects; none selects another's.

        Each is read by itself, where an index serves it but not all of them together.
        """
        pages = [self.page(statement, cursor, size) for statement in statements]
        backward = self.read(cursor)[0] if cursor else False
        rows = sorted((row for page in pages for row in page.rows), key=self._key)
        if self.is_descending:
            rows.reverse()
        more = len(rows) > size or any(page.previous if backward else page.next for page in pages)
        rows = rows[-size:] if backward else rows[:size]
        has_next = bool(rows) if backward else more
        has_previous = more if backward else bool(rows and cursor)
        return Slice(
            rows,
            self.cursor(rows[-1]) if has_next else None,
            self.cursor(rows[0], backward=True) if has_previous else None,
        )

    def _key(self, row: object) -> tuple[Any, ...]:
        return tuple(getattr(row, str(column.key)) for column in self.columns)

    def total(self, statement: Select[Any], most: int) -> int:
        """Return how many rows are selected, or `most` plus one if there are more.

        They are counted in this order, so that an index is read, and not the table.
        """
        limited = statement.with_only_columns(*self.columns).order_by(*self._ordered(False))
        return (
            db.session.scalar(select(func.count()).select_from(limited.limit(most + 1).subquery()))
            or 0
        )

    def cursor(self, row: object, *, backward: bool = False) -> str:
        """Return the cursor of the page after a row, or `backward`, before it."""
        values = [_written(getattr(row, str(column.key))) for column in self.columns]
        text = json.dumps([int(backward), *values], ensure_ascii=False, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    def read(self, cursor: str) -> tuple[bool, tuple[Any, ...]]:
        """Return whether a cursor leads backward, and the row's values. Raises `BadCursor`."""
        if len(cursor) > MOST:
            raise BadCursor
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), "-_", validate=True)
            backward, *values = json.loads(raw)
            kinds = [column.type.python_type for column in self.columns]
            parsed = tuple(_READ[kind](value) for kind, value in zip(kinds, values, strict=True))
        except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error):
            raise BadCursor from None
        if type(backward) is not int or backward not in (0, 1):
            raise BadCursor
        return bool(backward), parsed


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return str((value - _EPOCH) // (datetime.resolution))
    return str(value) if isinstance(value, UUID) else value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise BadCursor
    value.encode()  # no half of a surrogate pair
    return value


def _moment(value: Any) -> datetime:
    return _EPOCH + int(_text(value)) * datetime.resolution


_READ: dict[type, Callable[[Any], Any]] = {
    str: _text,
    UUID: lambda value: UUID(_text(value)),
    datetime: _moment,
}


MOST_MATCHES = 8  # candidates that are shown


class Match(NamedTuple, Generic[T]):
    """The rows that a text may mean. `is_exact`: the text is a whole identifier.

    Any other text may mean another user or client tomorrow.
    """

    rows: Sequence[T]
    is_exact: bool = False


class _Identified(Protocol):
    @property
    def id(self) -> Any: ...


Identified = TypeVar("Identified", bound=_Identified)


def matching(
    rows: Sequence[Identified],
    text: str,
    name: Callable[[Identified], str],
    *,
    by_part_of_name: bool = True,
) -> Match[Identified]:
    """Return the rows that an operator may mean: by id; else as `named`."""
    if exact := [row for row in rows if str(row.id) == text.strip().lower()]:
        return Match(exact, is_exact=True)
    return named(rows, text, lambda row: str(row.id), name, by_part_of_name=by_part_of_name)


def named(
    rows: Iterable[T],
    text: str,
    identifier: Callable[[T], str],
    name: Callable[[T], str],
    *,
    by_part_of_name: bool = True,
) -> Match[T]:
    """Return the rows with this name; else those whose identifier or name begins with the text.

    Case does not matter. `by_part_of_name`: whether the beginning of a name is enough.
    """
    text = text.strip().casefold()
    folded = [(row, identifier(row).casefold(), name(row).casefold()) for row in rows if text]

    if matches := [row for row, _, own_name in folded if own_name == text]:
        return Match(matches)
    return Match([
        row for row, own_identifier, own_name in folded
        if own_identifier.startswith(text) or (by_part_of_name and own_name.startswith(text))
    ])  # fmt: skip


MOST_VALUES = 10_000  # in a statement; SQLite takes 32,766


def batches(values: Sequence[T], size: int = MOST_VALUES) -> Iterator[Sequence[T]]:
    """Yield the values in parts that fit into one statement each."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def rows_with(
    statement: Select[*tuple[Any, ...]], column: InstrumentedAttribute[Any], values: Collection[Any]
) -> Iterator[Row[*tuple[Any, ...]]]:
    """Yield the selected rows that have one of these values in a column, however many there are."""
    for batch in batches(list(values)):
        yield from db.session.execute(statement.where(column.in_(batch)))


def write(statement: Update | Delete) -> int:
    """Execute an UPDATE or DELETE and return how many rows it changed.

    Objects in the session are left as they are: read them again if they matter.
    """
    result = db.session.execute(statement, execution_options={"synchronize_session": False})
    return cast(CursorResult[Any], result).rowcount


def write_one(statement: Update | Delete) -> bool:
    """Execute an UPDATE or DELETE of one row; return False if no row met its conditions."""
    return write(statement) == 1


def update_returning(model: type[Entity], statement: Update) -> Sequence[Entity]:
    """Execute an UPDATE of a table and return the changed rows, read again if they were loaded."""
    return db.session.scalars(
        statement.returning(model),
        execution_options={"populate_existing": True, "synchronize_session": False},
    ).all()
