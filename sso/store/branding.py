"""Statements about the stored branding: one row, or none."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from sso.config.branding import FIELDS, Branding
from sso.config.images import Image
from sso.database import dialects
from sso.extensions import db
from sso.models import StoredBranding

logger = logging.getLogger("sso.database")
_ID = 1


def read_again(before: Branding) -> Branding | None:
    """Return the stored branding; `before` itself if it has not changed since.

    `None` if the database cannot be read: pages that say so need no branding of it.
    """
    try:
        with _reading() as connection:
            now = _read(connection, before)
    except SQLAlchemyError as error:
        logger.warning("the branding cannot be read: %s", type(error).__name__)
        return None
    return before if now == before else now


@contextmanager
def _reading() -> Iterator[Connection]:
    """Return the connection of the session, if this request has begun one; else another one.

    Unlike `database.reading`, it does not flush the session: a page is rendered.
    """
    if db.session.registry.has():
        yield db.session.connection()
    else:
        # Not one that is kept for requests of programs (`database.connection`).
        with db.engine.connect() as connection:
            yield connection


def _read(connection: Connection, before: Branding) -> Branding:
    row = connection.execute(select(StoredBranding.fields, StoredBranding.logo_digest)).first()
    if row is None:
        return Branding()
    fields, digest = row
    logo = before.logo if digest and before.logo and before.logo.digest == digest else None
    if digest and logo is None:
        columns = select(StoredBranding.logo_type, StoredBranding.logo)
        media_type, data = connection.execute(columns).one()
        logo = Image(media_type or "", data or b"")
    # A newer version may have stored more fields.
    return Branding(**{name: fields[name] for name in FIELDS if name in fields}, logo=logo)


def find() -> StoredBranding | None:
    return db.session.get(StoredBranding, _ID)


def lock() -> StoredBranding:
    """Lock the row until the transaction ends, and return it; it is inserted if there is none."""
    dialects.insert_or_ignore(StoredBranding, [{"id": _ID, "fields": {}}])
    row = dialects.lock(StoredBranding, StoredBranding.id, StoredBranding.id == _ID)
    assert row
    return row


def write(row: StoredBranding, fields: Mapping[str, Any], logo: Image | None) -> None:
    """Write the fields, and the logo unless it is `None`; `NO_IMAGE` removes it."""
    row.fields = dict(fields)
    if logo is not None:
        row.logo_type = logo.media_type or None
        row.logo = logo.data or None
        row.logo_digest = logo.digest if logo.data else None
    db.session.flush()
