"""Where another server has its tables: a file of SQLite, or PostgreSQL."""

from contextlib import AbstractContextManager
from pathlib import Path

from sso.imports import postgresql_servers, sqlite_files
from sso.imports.files import Advance
from sso.imports.foreign_tables import Database
from sso.imports.person import FileProblem
from sso.imports.postgresql_servers import ServerUrl

Source = Path | ServerUrl


def parsed(text: str) -> Source:
    """Return the source that a file's path or a URL names. Raises `FileProblem`."""
    if postgresql_servers.is_url(text):
        return postgresql_servers.parsed(text)
    if "://" in text:
        raise FileProblem(
            "give the path of an SQLite file, or a URL such as postgresql://USER@HOST/DATABASE"
        )
    return Path(text)


def opened(source: Source) -> AbstractContextManager[Database]:
    """Open a database to read it, in one transaction. Raises `FileProblem`, also in the block."""
    if isinstance(source, ServerUrl):
        return postgresql_servers.opened(source)
    if not sqlite_files.is_database(source):
        raise FileProblem(f"{source} is no SQLite database")
    return sqlite_files.opened(source)


def require_tables(source: Source, database: Database, product: str, *tables: str) -> None:
    """Raise `FileProblem` if one of these tables is not there."""
    if lacking := [name for name in tables if name not in database.columns]:
        raise FileProblem(f"{source} is no database of {product}: it has no table {lacking[0]}")


def has_been_read(source: Source, advance: Advance) -> None:
    """Report that a file has been read twice; how large another database is, nobody knows."""
    if isinstance(source, Path):
        advance(source.stat().st_size * 2)
