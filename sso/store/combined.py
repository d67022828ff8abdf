"""Small lists from several tables, read by one statement.

Each list becomes a JSON array in one column of one row. A page with eight lists would otherwise
wait for eight round trips.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, Boolean, ColumnElement, Connection, Text, Uuid, cast, func
from sqlalchemy import select as select_
from sqlalchemy.types import TypeEngine

from sso.extensions import UtcDateTime
from sso.store import prepared

Reader = Callable[[Any], Any]
DIALECTS = ("postgresql", "sqlite")


class CombinedLists:
    """One statement for several lists: each is a Select with labelled columns, and its order."""

    def __init__(self, **lists: Any) -> None:
        self._statements = {
            dialect: select_(*(_array(rows, dialect).label(name) for name, rows in lists.items()))
            for dialect in DIALECTS
        }
        self._readers = {
            name: [(label, _reader(column.type)) for label, column in rows.selected_columns.items()]
            for name, rows in lists.items()
        }

    def read(
        self, connection: Connection, values: Mapping[str, Any]
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of each list, as dictionaries by label."""
        row = prepared.first(connection, self._statements[connection.dialect.name], values) or {}
        return {
            name: [
                {label: read(value) for (label, read), value in zip(readers, columns, strict=True)}
                for columns in json.loads(row[name])
            ]
            for name, readers in self._readers.items()
        }


def _array(rows: Any, dialect: str) -> ColumnElement[str]:
    is_postgresql = dialect == "postgresql"
    of_row = func.json_build_array if is_postgresql else func.json_array
    of_rows = func.json_agg if is_postgresql else func.json_group_array
    ordered = rows.subquery()
    array = cast(of_rows(of_row(*ordered.c)), Text)
    return select_(func.coalesce(array, "[]")).select_from(ordered).scalar_subquery()


def _reader(kind: TypeEngine[Any]) -> Reader:
    """Return what makes a value of a column's type from the one in the JSON array."""
    for type_, read in _READERS.items():
        if isinstance(kind, type_):
            return lambda value: None if value is None else read(value)
    return lambda value: value


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)  # SQLite stores UTC without saying so
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


_READERS: dict[type[TypeEngine[Any]], Reader] = {
    Uuid: UUID,
    UtcDateTime: _moment,
    Boolean: bool,
    JSON: lambda value: json.loads(value) if isinstance(value, str) else value,  # SQLite's is text
}
