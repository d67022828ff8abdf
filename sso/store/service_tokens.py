"""Statements about the access tokens that services get for themselves."""

from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, select, update

from sso import clock
from sso.extensions import db
from sso.models import Client, ServiceToken
from sso.store import clients, prepared
from sso.store.clients import RegisteredClient

MOST_COUNTED = 1000
_TABLE = prepared.table(ServiceToken)


@dataclass(frozen=True)
class NewServiceToken:
    """A token to be stored."""

    jti: str
    client_id: str
    audience: str
    scope: str
    access_digest: str
    dpop_jkt: str | None
    issued_at: datetime
    expires_at: datetime


@dataclass(frozen=True)
class ServiceAccessToken:
    """A token of a service, and the enabled client that it was issued to."""

    jti: str
    audience: str
    scope: str
    access_digest: str
    dpop_jkt: str | None
    expires_at: datetime
    revoked_at: datetime | None
    client: RegisteredClient

    def is_expired(self) -> bool:
        return self.expires_at <= clock.now()

    def is_revoked(self) -> bool:
        return self.revoked_at is not None


_NAMES = tuple(field.name for field in fields(NewServiceToken))
_ADD = insert(_TABLE).from_select(
    _NAMES,
    select(
        *(bindparam(name, type_=_TABLE.c[name].type).label(name) for name in _NAMES)
    ).select_from(clients.AS_SEEN),
    include_defaults=False,
)
_FIND = (
    select(*prepared.columns(ServiceAccessToken, _TABLE, "token_"), *clients.COLUMNS)
    .join_from(ServiceToken, Client, Client.client_id == ServiceToken.client_id)
    .where(ServiceToken.jti == bindparam("jti"), Client.disabled_at.is_(None))
)


def add(connection: Connection, token: NewServiceToken, client_seen: datetime) -> bool:
    """Store a token; return False if its client has changed since it was read.

    It must be the last statement of its request: on PostgreSQL it is committed at once.
    """
    return prepared.changed_at_once(connection, _ADD, {**vars(token), "client_seen": client_seen})


def find(connection: Connection, jti: str) -> ServiceAccessToken | None:
    """Return the token with this `jti` if its client is enabled."""
    row = prepared.first(connection, _FIND, {"jti": jti})
    if row is None:
        return None
    client = clients.registered_client(row)
    return prepared.record(ServiceAccessToken, row, "token_", client=client)


def revoke(token: ServiceAccessToken) -> None:
    """Revoke one token."""
    _revoke(ServiceToken.jti == token.jti)


def end_of_client(client_id: str) -> None:
    """Revoke the unexpired tokens of a client. The caller has locked the client."""
    _revoke(ServiceToken.client_id == client_id, ServiceToken.expires_at > clock.now())


def _revoke(*conditions: ColumnElement[bool]) -> None:
    db.session.execute(
        update(ServiceToken)
        .where(ServiceToken.revoked_at.is_(None), *conditions)
        .values(revoked_at=clock.now())
        .execution_options(synchronize_session=False)
    )


def count_live(client_id: str) -> int:
    """Return the number of live tokens of a client, at most `MOST_COUNTED`."""
    live = select(ServiceToken.jti).where(
        ServiceToken.client_id == client_id,
        ServiceToken.expires_at > clock.now(),
        ServiceToken.revoked_at.is_(None),
    )
    counted = live.limit(MOST_COUNTED).subquery()
    return int(db.session.scalar(select(func.count()).select_from(counted)) or 0)
