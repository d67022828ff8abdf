"""Which schema a database has, and which ones this program knows.

Alembic knows it, too, but takes 10 MB that no request needs: see `store.migrating`.
"""

from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text

_PACKAGE = Path(__file__).resolve().parents[1]
# A wheel has the migrations within the package, a checkout beside it.
_IN_WHEEL, _IN_CHECKOUT = _PACKAGE / "migrations", _PACKAGE.parent / "migrations"
FOLDER = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_CHECKOUT


@cache
def known() -> tuple[str, ...]:
    """This program's revisions, newest first: with them the names of the migrations begin."""
    files = (FOLDER / "versions").glob("[0-9]*_*.py")
    return tuple(sorted((file.name.partition("_")[0] for file in files), reverse=True))


def newest() -> str | None:
    """The revision that this program was made for."""
    return known()[0] if known() else None


def is_current(connection: Connection) -> bool:
    """Whether the database has the newest migration that this program knows, and no newer one."""
    return revision(connection) == newest()


def revision(connection: Connection) -> str | None:
    """The revision of a database; `None` before its first migration."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found
