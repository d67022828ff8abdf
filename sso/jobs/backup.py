"""Backup, restore and copy: rows from one database to another.

A backup is an SQLite database with the same tables. It is consistent although the service keeps
running, any SQLite tool can read it, and it can be restored into SQLite or PostgreSQL.
"""

import errno
import os
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, func, select, table
from sqlalchemy.exc import DatabaseError

from sso import database
from sso.crypto import keys
from sso.crypto import secrets as crypto_secrets
from sso.crypto.secrets import SecretKeys
from sso.database import schema
from sso.errors import OperatorError
from sso.extensions import Base, db
from sso.process.program import COMMAND
from sso.store import migrations

Report = Callable[[int, int], None]  # rows copied since the last call, and all


class MoveRefused(OperatorError):
    """The rows cannot be copied; `str()` says why, and what to do."""


def write(path: Path, replace: bool = False, report: Report | None = None) -> dict[str, int]:
    """Write all rows into a new file, with mode 0600, and read it again to verify it. On an error,
    `path` is unchanged.

    Raises `MoveRefused`, and `OSError` if the file cannot be written.

    `SSO_SECRET_KEY` is not included, and without it the encrypted keys cannot be used.
    """
    if path.exists() and not replace:
        raise MoveRefused(f"{path} exists; give another name or --force")
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        engine = database.open_engine(URL.create("sqlite", database=str(partial)))
        try:
            counts = copy_into(engine, report, any_schema=True)
            with engine.connect() as connection:
                # One file, without a log beside it.
                connection.exec_driver_sql("PRAGMA journal_mode = DELETE")
                _verify(connection, counts)
        except DatabaseError as error:
            if getattr(error.orig, "sqlite_errorname", "") != "SQLITE_FULL":
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        finally:
            engine.dispose()
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)
    finally:
        for name in (partial.name, f"{partial.name}-wal", f"{partial.name}-shm"):
            partial.with_name(name).unlink(missing_ok=True)
    return counts


def _verify(connection: Connection, counts: Mapping[str, int]) -> None:
    """Raise `MoveRefused` unless a backup is whole and has as many rows as were copied."""
    faults = [text for (text,) in connection.exec_driver_sql("PRAGMA integrity_check")]
    faults = [] if faults == ["ok"] else faults
    for name, count in counts.items():
        stored = connection.scalar(select(func.count()).select_from(table(name)))
        if stored != count:
            faults.append(f"{name} has {stored} rows of {count}")
    if faults:
        raise MoveRefused(f"the file is damaged, so it was not kept: {'; '.join(faults[:5])}")


def restore(path: Path, secret_keys: SecretKeys, report: Report | None = None) -> dict[str, int]:
    """Fill the empty database from a backup. Raises `MoveRefused`."""
    if not path.is_file():
        raise MoveRefused(f"there is no file {path}")
    url = f"file:{quote(str(path.absolute()))}?mode=ro"
    source = create_engine("sqlite://", creator=lambda: sqlite3.connect(url, uri=True))
    try:
        with source.connect() as connection:
            revision = schema.revision(connection)
            if revision is not None and revision not in schema.known():
                raise MoveRefused(
                    f"the backup has the schema {revision}, newer than this program's "
                    f"{schema.newest()}; install the version that made it, or a newer one"
                )
            if revision != schema.newest():
                raise MoveRefused(
                    f"the backup has the schema {revision}, this program {schema.newest()}; on a "
                    f"copy of it run: SSO_DATABASE_URL=sqlite:///COPY {COMMAND} db upgrade"
                )
            if not all(
                keys.can_decrypt(secret_keys, row) for row in migrations.signing_keys(connection)
            ):
                raise MoveRefused(
                    "SSO_SECRET_KEY does not open the backup's signing keys; give the secret key "
                    "of the installation that it was made from, as SSO_SECRET_KEY_PREVIOUS if "
                    "there is another one now"
                )
            if not all(
                crypto_secrets.can_decrypt_webhook_secret(secret_keys, encrypted)
                for encrypted in migrations.encrypted_webhook_secrets(connection)
            ):
                raise MoveRefused(
                    "SSO_SECRET_KEY does not open the backup's secrets of webhooks; give the "
                    "secret key that they were encrypted with as SSO_SECRET_KEY_PREVIOUS"
                )
            if not all(
                crypto_secrets.can_decrypt_scim_token(secret_keys, encrypted)
                for encrypted in migrations.encrypted_scim_tokens(connection)
            ):
                raise MoveRefused(
                    "SSO_SECRET_KEY does not open the backup's tokens for SCIM services; give the "
                    "secret key that they were encrypted with as SSO_SECRET_KEY_PREVIOUS"
                )
            return _fill(connection, db.engine, report, schema.newest())
    except DatabaseError as error:
        if "file is not a database" in str(error.orig):
            raise MoveRefused(f"{path} is not a backup") from None
        raise
    finally:
        source.dispose()


def copy_into(
    target: Engine, report: Report | None = None, *, any_schema: bool = False
) -> dict[str, int]:
    """Copy all rows of the database into another, empty one. Raises `MoveRefused`.

    `any_schema`: also copy an older schema; the copy keeps it.
    """
    with database.snapshot(db.engine) as source:
        revision = schema.revision(source)
        if revision is None:
            raise MoveRefused(f"the database has no tables yet; run: {COMMAND} db upgrade")
        if revision not in schema.known():
            raise MoveRefused(
                f"the database has the schema {revision}, newer than this program's "
                f"{schema.newest()}; use the version that upgraded it, or a newer one"
            )
        if revision != schema.newest() and not any_schema:
            raise MoveRefused(
                f"the database is not that of this program; run: {COMMAND} db upgrade"
            )
        return _fill(source, target, report, revision)


def _fill(
    source: Connection, target: Engine, report: Report | None, expected_revision: str | None
) -> dict[str, int]:
    """Copy all rows in one transaction. `expected_revision`: the schema of both databases."""
    with target.connect() as connection:
        is_new = not migrations.has_tables(connection)
    if is_new:
        migrations.make_tables(target, expected_revision or "head")
    with target.begin() as connection:
        if (revision := schema.revision(connection)) != expected_revision:
            contents = (
                f"the schema {revision}, this program {schema.newest()}"
                if revision
                else "other tables"
            )
            raise MoveRefused(f"the target has {contents}; give an empty database")
        is_newest = expected_revision == schema.newest()
        metadata = Base.metadata if is_newest else migrations.tables(source, connection)
        if occupied := migrations.occupied(connection, metadata):
            raise MoveRefused(f"the target is not empty: it has {', '.join(occupied)}")
        migrations.forget_first_rows(connection, metadata)
        return migrations.copy(source, connection, metadata, report)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
