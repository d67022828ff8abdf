"""Statements about the methods of imported passwords."""

from collections.abc import Collection

from sqlalchemy import select

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import ImportedHash


def methods() -> frozenset[str]:
    """The methods by which the passwords of users may be hashed that were made elsewhere."""
    return frozenset(db.session.scalars(select(ImportedHash.method)))


def note(methods: Collection[str]) -> None:
    """Users are given passwords with these methods in this transaction."""
    if not methods:
        return
    # An update, too: a purge must not remove what it has seen before.
    now = clock.now()
    rows = [{"method": method, "imported_at": now} for method in sorted(methods)]
    changed = dialects.insert(ImportedHash).values(rows)
    db.session.execute(
        changed.on_conflict_do_update(
            index_elements=["method"], set_={"imported_at": changed.excluded.imported_at}
        )
    )
