"""Statements about SAML: service providers, persistent identifiers, and what sign-out names."""

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select

from sso.database import dialects
from sso.extensions import Base, db
from sso.models import Client, Grant, SamlServiceProvider, SamlSession, SamlSubject
from sso.store import prepared
from sso.store.clients import COLUMNS, RegisteredClient, registered_client


def keep_entity_id(client: Client) -> bool:
    """Store the entity ID of a client; return False if it is another client's."""
    is_theirs = SamlServiceProvider.client_id == client.client_id
    db.session.execute(delete(SamlServiceProvider).where(is_theirs))
    values = {"entity_id": client.entity_id, "client_id": client.client_id}
    return _added(db.session.connection(), SamlServiceProvider, values)


def _added(connection: Connection, model: type[Base], values: dict[str, Any]) -> bool:
    """Insert a row; return False if there is one that excludes it."""
    table = prepared.table(model)
    new = dialects.insert(table, connection.dialect.name).values(values).on_conflict_do_nothing()
    return connection.execute(new.returning(table.c.client_id)).first() is not None


def find_client(connection: Connection, entity_id: str) -> RegisteredClient | None:
    """Return the enabled client with this entity ID."""
    statement = (
        select(*COLUMNS)
        .join(SamlServiceProvider, SamlServiceProvider.client_id == Client.client_id)
        .where(SamlServiceProvider.entity_id == entity_id, Client.disabled_at.is_(None))
    )
    row = connection.execute(statement).mappings().first()
    return registered_client(dict(row)) if row else None


def entity_ids() -> dict[str, str]:
    """Return all registered entity IDs, each with the ID of its client."""
    rows = db.session.execute(select(SamlServiceProvider.entity_id, SamlServiceProvider.client_id))
    return {row.entity_id: row.client_id for row in rows}


def persistent_id(connection: Connection, client_id: str, user_id: UUID) -> str:
    """Return the identifier of a person at a service provider; make it at the first sign-on."""
    table = prepared.table(SamlSubject)
    mine = (table.c.client_id == client_id) & (table.c.user_id == user_id)
    statement = select(table.c.name_id).where(mine)
    if name_id := connection.scalar(statement):
        return str(name_id)
    values = {"client_id": client_id, "user_id": user_id, "name_id": secrets.token_urlsafe(24)}
    _added(connection, SamlSubject, values)
    return str(connection.scalar(statement))


def existing_persistent_id(client_id: str, user_id: UUID) -> str | None:
    """Return the identifier of a person at a service provider, if there is one yet."""
    return db.session.scalar(
        select(SamlSubject.name_id).where(
            SamlSubject.client_id == client_id, SamlSubject.user_id == user_id
        )
    )


def keep_session(
    connection: Connection,
    grant_id: UUID,
    session_id: UUID,
    client_id: str,
    name_id: str,
    name_id_format: str,
) -> None:
    """Store what a service provider is told of a session; it replaces what it was told before.

    The earlier grant of the session at this client goes, too, so that rows do not add up.
    """
    connection.execute(
        delete(Grant).where(
            Grant.session_id == session_id, Grant.client_id == client_id, Grant.id != grant_id
        )
    )
    connection.execute(
        insert(SamlSession).values(
            grant_id=grant_id, name_id=name_id, name_id_format=name_id_format
        )
    )


class LiveSession(NamedTuple):
    """A session at a service provider."""

    grant_id: UUID
    client_id: str
    name_id: str
    name_id_format: str


def live_sessions(session_id: UUID) -> Sequence[LiveSession]:
    """Return the sessions at service providers that a browser session has begun, oldest first."""
    rows = db.session.execute(
        select(SamlSession.grant_id, Grant.client_id, SamlSession.name_id,
               SamlSession.name_id_format)
        .join(Grant, Grant.id == SamlSession.grant_id)
        .join(Client, Client.client_id == Grant.client_id)
        .where(Grant.session_id == session_id, Grant.ended_at.is_(None),
               Client.disabled_at.is_(None))
        .order_by(Grant.created_at)
    )  # fmt: skip
    return [LiveSession(*row) for row in rows]
