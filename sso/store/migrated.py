"""Statements about what was taken over from another server."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import select

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import Migrated, User
from sso.store import lists
from sso.store.lists import batches

CLIENT, USER = "client", "user"


def taken(kind: str, source: str, keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return what was taken from a source of the things with these keys, by key."""
    by_key: dict[str, dict[str, Any]] = {}
    for batch in batches(sorted(keys)):
        rows = db.session.execute(
            select(Migrated.key, Migrated.taken).where(
                Migrated.kind == kind, Migrated.source == source, Migrated.key.in_(batch)
            )
        )
        by_key |= {row.key: row.taken for row in rows}
    return by_key


def keys(kind: str, source: str) -> set[str]:
    """Return the keys of what was taken from a source."""
    statement = select(Migrated.key).where(Migrated.kind == kind, Migrated.source == source)
    return set(db.session.scalars(statement))


def note(kind: str, source: str, taken: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Record what was taken, by key, in place of what was taken before."""
    now = clock.now()
    rows = [
        {"kind": kind, "key": key, "source": source, "taken": dict(value), "migrated_at": now}
        for key, value in taken
    ]
    for batch in batches(rows, 1_000):
        statement = dialects.insert(Migrated).values(batch)
        new = {name: statement.excluded[name] for name in ("source", "taken", "migrated_at")}
        db.session.execute(
            statement.on_conflict_do_update(index_elements=["kind", "key"], set_=new)
        )


def versions(user_ids: Collection[UUID]) -> dict[UUID, int]:
    """Return the versions of users, by ID."""
    rows = lists.rows_with(select(User.id, User.version), User.id, user_ids)
    return {row.id: row.version for row in rows}
