"""A code or a refresh token that comes once more: what it hangs on, and when it was used."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Table, bindparam, select

from sso.models import Grant
from sso.store import prepared


class Used(NamedTuple):
    """One that was used before."""

    grant_id: UUID
    user_id: UUID
    used_at: datetime


def statement(
    table: Table, digest: ColumnElement[str], used_at: ColumnElement[datetime]
) -> Select[Any]:
    """Finds a used row by its digest, if its grant is this client's."""
    return (
        select(table.c.grant_id, Grant.user_id, used_at)
        .join_from(table, Grant, Grant.id == table.c.grant_id)
        .where(
            digest == bindparam("digest"),
            used_at.is_not(None),
            Grant.client_id == bindparam("client"),
        )
    )


def find(made: Select[Any], digest: str, client_id: str) -> Used | None:
    """Run what `statement` made."""
    row = prepared.first(made, {"digest": digest, "client": client_id})
    return Used._make(row) if row else None
