"""Statements about token exchange: the access tokens that are exchanged, and the new ones.

A new token is a row of `tokens` with the same grant, and with the client that got it.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, exists, insert, literal, select, update

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import Client, Grant, Token, User
from sso.store import clients, grants, prepared
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.users import ENABLED

_TOKENS = prepared.table(Token)


@dataclass(frozen=True)
class SubjectToken:
    """An access token of a person, with its grant, which has not ended.

    `owner` is the client that the grant belongs to. If the token itself came from an exchange,
    `client_id` is the client that got it.
    """

    access_digest: str | None
    scope: str
    audience: str | None
    dpop_jkt: str | None
    expires_at: datetime
    revoked_at: datetime | None
    client_id: str | None
    actors: str | None
    grant: LiveGrant
    owner: RegisteredClient

    @property
    def issued_to(self) -> str:
        """The client that the token was issued to."""
        return self.client_id or self.owner.client_id

    @property
    def actor_ids(self) -> list[str]:
        """The clients that act with the token, the newest first."""
        return (self.actors or "").split()

    def is_live(self) -> bool:
        """Return whether it has neither expired nor been revoked."""
        return self.revoked_at is None and self.expires_at > clock.now()


_FIND = grants.join_today(
    select(
        *prepared.columns(SubjectToken, _TOKENS, "token_"),
        *grants.LIVE_GRANT,
        *clients.COLUMNS,
    )
    .join_from(Token, Grant, Token.grant_id == Grant.id)
    .join(User, User.id == Grant.user_id)
    .join(Client, Client.client_id == Grant.client_id)
).where(
    Token.jti == bindparam("jti"),
    Grant.ended_at.is_(None),
    ENABLED,
    Client.disabled_at.is_(None),
)


def find(connection: Connection, jti: str) -> SubjectToken | None:
    """Return the access token with this `jti` if its user, grant and owner are live."""
    row = prepared.first(connection, _FIND, {"jti": jti, "now": clock.now()})
    grant = grants.live_grant_of(row) if row else None
    if row is None or grant is None:
        return None
    owner = clients.registered_client(row)
    return prepared.record(SubjectToken, row, "token_", grant=grant, owner=owner)


@dataclass(frozen=True)
class ExchangedToken:
    """A token that a client gets by exchange, to be stored, and its user."""

    user_id: UUID
    jti: str
    access_digest: str
    grant_id: UUID
    client_id: str
    actors: str
    scope: str
    audience: str
    is_narrowed: bool
    dpop_jkt: str | None
    issued_at: datetime
    expires_at: datetime


_NAMES = tuple(field.name for field in fields(ExchangedToken) if field.name in _TOKENS.c)
_ADD = insert(_TOKENS).from_select(
    _NAMES,
    select(*(bindparam(name, type_=_TOKENS.c[name].type).label(name) for name in _NAMES))
    .select_from(clients.AS_SEEN)
    .where(
        exists().where(
            Grant.id == bindparam("grant_id", type_=_TOKENS.c.grant_id.type),
            Grant.ended_at.is_(None),
        )
    ),
    include_defaults=False,
)


def add(connection: Connection, token: ExchangedToken, client_seen: datetime) -> bool:
    """Store a token; return False if its grant has ended, or its client was changed meanwhile.

    It must be the last statement of its request: on PostgreSQL it is committed at once.
    """
    values = {**vars(token), "client_seen": client_seen}
    return prepared.changed_at_once(connection, _ADD, values)


def end_of_client(client_id: str) -> None:
    """Revoke the tokens with which a client acts; there may be many. The caller has locked the
    client.
    """
    dialects.without_time_limit()
    acts = (literal(" ") + Token.actors + " ").contains(f" {client_id} ", autoescape=True)
    live: list[Any] = [Token.revoked_at.is_(None), Token.expires_at > clock.now()]
    db.session.execute(
        update(Token)
        .where(Token.client_id.is_not(None), acts, *live)
        .values(revoked_at=clock.now())
        .execution_options(synchronize_session=False)
    )
