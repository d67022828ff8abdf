"""The revision of a database's schema, and the revisions that this program has migrations for.

Alembic could tell both, but takes 10 MB that no request needs; `store.migrations` migrates.
"""

from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text

_PACKAGE = Path(__file__).resolve().parents[1]
# A wheel has the migrations inside the package, a checkout beside it.
_IN_WHEEL, _IN_CHECKOUT = _PACKAGE / "migrations", _PACKAGE.parent / "migrations"
FOLDER = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_CHECKOUT


@cache
def known() -> tuple[str, ...]:
    """Return this program's revisions, newest first: migrations have them in their file names."""
    files = (FOLDER / "versions").glob("[0-9]*_*.py")
    return tuple(sorted((file.name.partition("_")[0] for file in files), reverse=True))


def newest() -> str | None:
    """Return the revision that this program was made for."""
    return known()[0] if known() else None


def is_current(connection: Connection) -> bool:
    """Return whether the database has this program's newest revision, and no newer one."""
    return revision(connection) == newest()


def revision(connection: Connection) -> str | None:
    """Return the revision of a database; `None` before its first migration."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    number: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return number
