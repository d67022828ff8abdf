"""CSV files of what a page lists, streamed in batches."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from flask import Response, stream_with_context
from sqlalchemy import Select

from sso import audit
from sso.audit.events import Event
from sso.endpoints.admin import access
from sso.extensions import db
from sso.store.lists import Order

T = TypeVar("T")
_BATCH = 1000
# Spreadsheets run a cell that begins so as a formula; some trim it first, and some take the wide
# characters of Japanese keyboards for these.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def send(what: str, name: str, mimetype: str, body: Iterator[str]) -> Response:
    """Record an export in the audit trail, commit, and stream the file. `what`: for the record."""
    with audit.acting_as(access.staff().actor):
        audit.event(Event.EXPORTED, what=what)
    db.session.commit()
    response = Response(stream_with_context(body), mimetype=mimetype)
    response.headers["Content-Disposition"] = f"attachment; filename={name}"
    return response


def send_table(what: str, titles: Sequence[str], lines: Iterable[Sequence[object]]) -> Response:
    """Send a CSV file, named after what it lists; see `send`."""
    return send(f"{what} as csv", f"{what.lower()}.csv", "text/csv", table(titles, lines))


def moment(time: datetime) -> str:
    """Return a time as a cell has it: in UTC."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def rows(order: Order, statement: Select[Any]) -> Iterator[Any]:
    """Yield all rows, without an open transaction meanwhile."""
    for batch, _ in batches(order, statement, lambda _: None):
        yield from batch


def batches(
    order: Order, statement: Select[Any], read: Callable[[Sequence[Any]], T]
) -> Iterator[tuple[Sequence[Any], T]]:
    """Yield all rows in batches, each with what `read` reads about it, without an open transaction
    between them.
    """
    cursor: str | None = None
    while True:
        batch = order.page(statement, cursor, _BATCH)
        about = read(batch.rows)
        db.session.expunge_all()
        db.session.rollback()
        yield batch.rows, about
        if (cursor := batch.next) is None:
            return


def whole(read: Callable[[], Sequence[T]]) -> Iterator[T]:
    """Yield all rows of a list that is read whole, without an open transaction meanwhile."""
    matching = read()
    db.session.expunge_all()
    db.session.rollback()
    yield from matching


def table(titles: Sequence[str], lines: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a CSV file, with harmless cells."""
    yield _line(titles)
    for line in lines:
        yield _line([harmless(value) for value in line])


def _line(values: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue()


def harmless(value: object) -> str:
    """Escape a cell that spreadsheets would run as a formula: people choose their names."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
