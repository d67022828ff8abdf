"""Statements about clients."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, delete, select

from sso.extensions import db
from sso.models import Client


def find(client_id: str) -> Client | None:
    """A client, disabled or not."""
    return db.session.scalar(select(Client).where(Client.client_id == client_id))


_FIND_ENABLED = select(Client).where(
    Client.client_id == bindparam("client_id"), Client.disabled_at.is_(None)
)


def find_enabled(client_id: str) -> Client | None:
    """A client that may act; a disabled one counts as unknown."""
    return db.session.scalar(_FIND_ENABLED, {"client_id": client_id})


def every() -> Sequence[Client]:
    """All clients, oldest first."""
    return db.session.scalars(select(Client).order_by(Client.created_at, Client.client_id)).all()


def add(client: Client) -> None:
    db.session.add(client)
    db.session.flush()


def remove(client: Client) -> None:
    """Delete a client with its consents, grants, codes and tokens (by foreign key)."""
    db.session.execute(delete(Client).where(Client.client_id == client.client_id))


def replace_secret(client: Client, digest: str, keep_old_until: datetime | None) -> None:
    """Give a client a new secret; the old one goes on until that moment, or stops at once."""
    client.previous_secret_digest = client.secret_digest if keep_old_until else None
    client.previous_secret_expires_at = keep_old_until
    client.secret_digest = digest
    db.session.flush()
