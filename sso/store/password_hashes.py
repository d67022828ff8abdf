"""Statements about password hashes: of a user, and which methods of foreign ones there are."""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, bindparam, select

from sso import clock, database
from sso.database import dialects
from sso.extensions import db
from sso.models import ImportedHash, User
from sso.models.users import has_ended
from sso.store import prepared


class PasswordOwner(NamedTuple):
    """What the check of a password needs of a user."""

    id: UUID
    password_hash: str | None
    disabled_at: datetime | None
    ends_at: datetime | None

    @property
    def is_disabled(self) -> bool:
        """See `User.is_disabled`."""
        return self.disabled_at is not None or has_ended(self.ends_at)


_USERS = prepared.table(User)
_PASSWORD_OWNER = select(*(_USERS.c[name] for name in PasswordOwner._fields)).where(
    _USERS.c.email == bindparam("given_email")
)


def find_password_owner(connection: Connection, email: str) -> PasswordOwner | None:
    """Return what `find_by_email` returns, as far as the check of a password needs it."""
    row = prepared.first(connection, _PASSWORD_OWNER, {"given_email": email.strip().lower()})
    return PasswordOwner(**row) if row else None


_ANY_FOREIGN_HASH = select(prepared.table(ImportedHash).c.method).limit(1)


def foreign_hash_methods() -> frozenset[str]:
    """Return the methods of foreign password hashes that users may have."""
    with database.reading() as connection:
        if prepared.first(connection, _ANY_FOREIGN_HASH, {}) is None:
            return frozenset()
    return frozenset(db.session.scalars(select(ImportedHash.method)))


def note_foreign_hashes(methods: Collection[str]) -> None:
    """Record that this transaction gives users password hashes with these methods."""
    if not methods:
        return
    # Rows that exist are updated, too: a purge must not remove what it has read before.
    now = clock.now()
    rows = [{"method": method, "imported_at": now} for method in sorted(methods)]
    statement = dialects.insert(ImportedHash).values(rows)
    db.session.execute(
        statement.on_conflict_do_update(
            index_elements=["method"], set_={"imported_at": statement.excluded.imported_at}
        )
    )
