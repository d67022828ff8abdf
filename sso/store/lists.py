"""Long lists: pages by keyset, lookup by a part of a name, statements that write many rows.

A page begins behind the last row of the one before it. So each costs the same wherever it is, and
no row is skipped or repeated while rows come and go.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar, cast
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    CursorResult,
    Delete,
    Select,
    Update,
    literal,
    select,
    tuple_,
)
from sqlalchemy.orm import InstrumentedAttribute

from sso.extensions import db

T = TypeVar("T")
PAGE = 50
MOST = 2000  # characters of a cursor
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BadCursor(ValueError):
    """A cursor that no page has given, or one of another list."""


@dataclass(frozen=True)
class Slice(Generic[T]):
    """One page of a list, and the cursors of its neighbours, as far as there are any."""

    rows: Sequence[T]
    next: str | None = None
    previous: str | None = None


@dataclass(frozen=True)
class Order:
    """The columns that a list is ordered by; together they are unique, and none is NULL.

    All go in one direction, so that an index on them serves both ways. `is_key_first`: the values
    of the one column are selected first, then their rows; for what an index answers by itself.
    """

    columns: tuple[InstrumentedAttribute[Any] | ColumnElement[Any], ...]
    is_descending: bool = False
    is_key_first: bool = False

    def page(self, statement: Select[T], cursor: str | None, size: int = PAGE) -> Slice[T]:
        """One page of what is selected; the first one without a cursor. Raises `BadCursor`."""
        backward, values = self.read(cursor) if cursor else (False, ())
        descending = self.is_descending != backward
        if values:
            columns = zip(values, self.columns, strict=True)
            place: Any = [literal(value, column.type) for value, column in columns]
            keys: Any = self.columns
            # SQLite takes no index for a row of one value.
            keys, place = (
                (keys[0], place[0]) if len(place) == 1 else (tuple_(*keys), tuple_(*place))
            )
            statement = statement.where(keys < place if descending else keys > place)
        ordered = [one.desc() if descending else one.asc() for one in self.columns]
        limited = statement.order_by(*ordered).limit(size + 1)
        if self.is_key_first:
            keys = db.session.scalars(limited.with_only_columns(self.columns[0])).all()
            row = statement.column_descriptions[0]["entity"]
            limited = select(row).where(self.columns[0].in_(keys)).order_by(*ordered)
        found = list(db.session.scalars(limited))
        more, found = len(found) > size, found[:size]
        if backward:
            found.reverse()
        has_next = bool(found) if backward else more
        has_previous = more if backward else bool(found and values)
        return Slice(
            found,
            self.cursor(found[-1]) if has_next else None,
            self.cursor(found[0], backward=True) if has_previous else None,
        )

    def cursor(self, row: object, *, backward: bool = False) -> str:
        """The place behind a row, or before it."""
        values = [_written(getattr(row, str(column.key))) for column in self.columns]
        text = json.dumps([int(backward), *values], ensure_ascii=False, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    def read(self, cursor: str) -> tuple[bool, tuple[Any, ...]]:
        """Whether a cursor leads backward, and the row's values. Raises `BadCursor`."""
        if len(cursor) > MOST:
            raise BadCursor
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), "-_", validate=True)
            backward, *values = json.loads(raw)
            kinds = [column.type.python_type for column in self.columns]
            read = tuple(_READ[kind](one) for kind, one in zip(kinds, values, strict=True))
        except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error):
            raise BadCursor from None
        if type(backward) is not int or backward not in (0, 1):
            raise BadCursor
        return bool(backward), read


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
    """What a text may mean. `is_exact`: it is a whole identifier.

    Anything else may mean another user or client tomorrow.
    """

    found: Sequence[T]
    is_exact: bool = False


def named(
    rows: Iterable[T],
    text: str,
    identifier: Callable[[T], str],
    name: Callable[[T], str],
    *,
    by_part_of_name: bool = True,
) -> Match[T]:
    """Return the rows with this name; else those whose identifier or name begins so, in any case.

    `by_part_of_name`: whether the beginning of a name is enough.
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


def write(statement: Update | Delete) -> int:
    """Execute an UPDATE or DELETE and return how many rows it changed.

    Objects in the session are left as they are: read them again if they matter.
    """
    result = db.session.execute(statement, execution_options={"synchronize_session": False})
    return cast(CursorResult[Any], result).rowcount
