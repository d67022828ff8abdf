"""Statements about clients."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import bindparam, delete, inspect, select, update

from sso.extensions import db
from sso.models import Client
from sso.store import client_turn, prepared
from sso.store.direct import Row


def find(client_id: str) -> Client | None:
    """A client, disabled or not."""
    return db.session.scalar(select(Client).where(Client.client_id == client_id))


def lock(client_id: str) -> Client | None:
    """A client, disabled or not, as the row is now, and stays until the transaction ends.

    To be called before users, sessions and grants are locked, which is the order of `grants.add`.
    An update instead of FOR UPDATE, which SQLite does not know.
    """
    client_turn.take(client_id)
    return db.session.scalar(
        update(Client)
        .where(Client.client_id == client_id)
        .values(require_pkce=Client.require_pkce, updated_at=Client.updated_at)
        .returning(Client)
        .execution_options(populate_existing=True, synchronize_session=False)
    )


_KEYS = tuple(attribute.key for attribute in inspect(Client).column_attrs)
COLUMNS = tuple(attribute.columns[0] for attribute in inspect(Client).column_attrs)
"""What a statement selects first whose rows are for `and_rest`."""
_FIND_ENABLED = select(*COLUMNS).where(
    Client.client_id == bindparam("client_id"), Client.disabled_at.is_(None)
)


def find_enabled(client_id: str) -> Client | None:
    """A client that may act, to be read alone: the session does not know it.

    A disabled one counts as unknown.
    """
    row = prepared.first(_FIND_ENABLED, {"client_id": client_id})
    return and_rest(row)[0] if row else None


_DISABLED_AT = select(Client.disabled_at).where(Client.client_id == bindparam("client_id"))


def why_not_enabled(client_id: str) -> str | None:
    """Why `find_enabled` finds nothing, in a few words."""
    row = prepared.first(_DISABLED_AT, {"client_id": client_id})
    if row is None:
        return "unknown client"
    return "disabled client" if row[0] else None


def and_rest(row: Row) -> tuple[Client, Row]:
    """The client, to be read alone, of a row that begins with `COLUMNS`; and what follows them."""
    return _built(row[: len(COLUMNS)]), row[len(COLUMNS) :]


@lru_cache(maxsize=256)
def _built(row: Row) -> Client:
    # The row is read at each request, so that a change counts at once; the same row makes the
    # same client, and metadata need not be parsed again.
    return Client(**dict(zip(_KEYS, row, strict=True)))


class Registration(NamedTuple):
    """The part of a client's registration that limits what its grants give (`flow.narrowing`)."""

    scope: str
    groups: frozenset[str]
    first_party: bool
    require_mfa: bool


REGISTRATION = tuple(
    prepared.table(Client).c[name] for name in ("client_metadata", "first_party", "require_mfa")
)
"""The columns that `registration_of` reads."""


@lru_cache(maxsize=256)
def registration_of(row: Row) -> Registration:
    """What the columns of `REGISTRATION` hold. Cached by value: the metadata is parsed once."""
    metadata, first_party, require_mfa = row
    client = Client(_client_metadata=metadata)
    return Registration(client.scope, frozenset(client.groups), first_party, require_mfa)


def every() -> Sequence[Client]:
    """All clients, oldest first."""
    return db.session.scalars(select(Client).order_by(Client.created_at, Client.client_id)).all()


def add(client: Client) -> None:
    db.session.add(client)
    db.session.flush()


def lock_to_remove(client_id: str) -> Client | None:
    """As `lock`, and nobody may even refer to the client any more.

    To be called before its grants are ended: an ending refers to the clients first.
    """
    client = lock(client_id)
    db.session.execute(
        select(Client.client_id).where(Client.client_id == client_id).with_for_update()
    )
    return client


def remove(client: Client) -> None:
    """Delete a client with its consents, grants, codes and tokens (by foreign key)."""
    db.session.execute(delete(Client).where(Client.client_id == client.client_id))


def replace_secret(client: Client, digest: str, keep_old_until: datetime | None) -> None:
    """Give a client a new secret; the old one goes on until that moment, or stops at once."""
    client.previous_secret_digest = client.secret_digest if keep_old_until else None
    client.previous_secret_expires_at = keep_old_until
    client.secret_digest = digest
    db.session.flush()


def names(client_ids: Iterable[str]) -> dict[str, str]:
    """What clients are called, by id; those that are gone are left out."""
    found = db.session.scalars(select(Client).where(Client.client_id.in_(list(client_ids))))
    return {client.client_id: client.name for client in found}
