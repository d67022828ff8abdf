"""Statements about tokens; single use of refresh tokens is decided here."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, exists, insert, select, update
from sqlalchemy.orm import contains_eager

from sso import clock
from sso.extensions import db
from sso.models import Client, Grant, Token, User
from sso.store import circumstances, clients, live_grants, prepared, reuse
from sso.store.circumstances import Circumstances
from sso.store.live_grants import LiveGrant
from sso.store.users import USER_PROFILE, UserProfile

_TOKENS = prepared.table(Token)


class Granted(NamedTuple):
    """The grant of an access token, as `flow.narrowing` asks for it."""

    scope: str
    amr: str
    session_is_live: bool
    consented: str | None
    declined: str | None


class AccessToken(NamedTuple):
    """An access token as userinfo needs it, with the methods that Authlib calls."""

    access_digest: str | None
    scope: str
    is_narrowed: bool
    expires_at: datetime
    revoked_at: datetime | None
    grant_ended_at: datetime | None
    requested_claims: dict[str, Any]
    granted: Granted
    client: clients.Registration
    user: UserProfile

    def get_scope(self) -> str:
        return self.scope

    def is_expired(self) -> bool:
        return self.expires_at <= clock.now()

    def is_revoked(self) -> bool:
        return self.revoked_at is not None or self.grant_ended_at is not None


_OF_TOKEN = (
    *_TOKENS.c["access_digest", "scope", "is_narrowed", "expires_at", "revoked_at"],
    *prepared.table(Grant).c["ended_at", "claims"],
)
_OF_GRANT = (*prepared.table(Grant).c["scope", "amr"], *live_grants.TODAY)
_ACCESS_TOKEN = live_grants.join_today(
    select(*_OF_TOKEN, *_OF_GRANT, *clients.REGISTRATION, *USER_PROFILE)
    .join_from(Token, Grant, Token.grant_id == Grant.id)
    .join(User, User.id == Grant.user_id)
    .join(Client, Client.client_id == Grant.client_id)
).where(Token.jti == bindparam("jti"), User.disabled_at.is_(None), Client.disabled_at.is_(None))
_GRANT = len(_OF_TOKEN)
_CLIENT = _GRANT + len(_OF_GRANT)
_PERSON = _CLIENT + len(clients.REGISTRATION)


def find_access_token(jti: str) -> AccessToken | None:
    """An access token of a user and a client that are both enabled, with the user's profile."""
    row = prepared.read(_ACCESS_TOKEN, {"jti": jti, "now": clock.now()})
    if row is None:
        return None
    granted = Granted._make(row[_GRANT:_CLIENT])
    client = clients.registration_of(row[_CLIENT:_PERSON])
    return AccessToken._make((*row[:_GRANT], granted, client, UserProfile._make(row[_PERSON:])))


class NewToken(NamedTuple):
    """The row of one token response, to be stored."""

    jti: str
    access_digest: str
    grant_id: UUID
    scope: str
    is_narrowed: bool
    issued_at: datetime
    expires_at: datetime
    refresh_digest: str | None
    refresh_expires_at: datetime | None


_ADD = insert(_TOKENS)


def add(token: NewToken) -> None:
    prepared.run(_ADD, token._asdict())


def find_by_jti(jti: str) -> Token | None:
    """The token response with this access token, with grant, user and client, both enabled."""
    return db.session.scalar(
        select(Token)
        .join(Token.grant)
        .join(Grant.user)
        .join(Grant.client)
        .options(
            contains_eager(Token.grant).contains_eager(Grant.user),
            contains_eager(Token.grant).contains_eager(Grant.client),
        )
        .where(Token.jti == jti, User.disabled_at.is_(None), Client.disabled_at.is_(None))
    )


def find_by_refresh_digest(digest: str) -> Token | None:
    """The token response with this refresh token, used or not, with its grant."""
    return db.session.scalar(
        select(Token)
        .join(Token.grant)
        .options(contains_eager(Token.grant))
        .where(Token.refresh_digest == digest)
        .execution_options(populate_existing=True)
    )


_FIND_WITH_CLIENT = live_grants.join_live_grant(
    select(*clients.COLUMNS, *live_grants.LIVE_GRANT)
    .select_from(Client)
    .outerjoin(_TOKENS, _TOKENS.c.refresh_digest == bindparam("digest")),
    _TOKENS.c.grant_id,
).where(Client.client_id == bindparam("client"), Client.disabled_at.is_(None))


def find_with_client(
    client_id: str, digest: str, now: datetime
) -> tuple[Client | None, LiveGrant | None]:
    """In one statement: the enabled client, and what the refresh token stands for, used or not."""
    row = prepared.first(_FIND_WITH_CLIENT, {"client": client_id, "digest": digest, "now": now})
    if row is None:
        return None, None
    client, rest = clients.and_rest(row)
    return client, live_grants.live_grant_of(rest)


_USE_REFRESH = (
    update(_TOKENS)
    .where(
        _TOKENS.c.refresh_digest == bindparam("digest"),
        _TOKENS.c.refresh_used_at.is_(None),
        _TOKENS.c.refresh_expires_at > bindparam("now"),
        exists().where(
            Grant.id == _TOKENS.c.grant_id,
            Grant.client_id == bindparam("client"),
            Grant.ended_at.is_(None),
        ),
    )
    .values(refresh_used_at=bindparam("now"))
)


def use_refresh(digest: str, client_id: str, now: datetime) -> bool:
    """Use a refresh token up, if it is unused, unexpired and this client's: one statement."""
    return prepared.changed(_USE_REFRESH, {"digest": digest, "client": client_id, "now": now})


class UsedRefresh(NamedTuple):
    """A refresh token that was used before, and its successor as far as that is stored."""

    grant_id: UUID
    user_id: UUID
    used_at: datetime
    has_successor: bool
    successor_used_at: datetime | None


_SUCCESSORS = _TOKENS.alias("successors")
_FIND_USED_REFRESH = (
    reuse.statement(_TOKENS, _TOKENS.c.refresh_digest, _TOKENS.c.refresh_used_at)
    .add_columns(_SUCCESSORS.c.jti.is_not(None), _SUCCESSORS.c.refresh_used_at)
    .outerjoin(
        _SUCCESSORS,
        (_SUCCESSORS.c.refresh_digest == bindparam("successor"))
        & (_SUCCESSORS.c.grant_id == _TOKENS.c.grant_id),
    )
    .where(Grant.ended_at.is_(None))
)


def find_used_refresh(digest: str, client_id: str, successor: str) -> UsedRefresh | None:
    """A refresh token of this client that was used before, and whose grant has not ended.

    `successor` is the digest of the token that it was exchanged for.
    """
    values = {"digest": digest, "client": client_id, "successor": successor}
    row = prepared.first(_FIND_USED_REFRESH, values)
    return UsedRefresh._make(row) if row else None


_CIRCUMSTANCES_OF_REFRESH = circumstances.statement(
    _TOKENS,
    _TOKENS.c.refresh_digest == bindparam("digest"),
    digest=_TOKENS.c.refresh_digest,
    expires_at=_TOKENS.c.refresh_expires_at,
    used_at=_TOKENS.c.refresh_used_at,
)
_CIRCUMSTANCES_OF_ACCESS = circumstances.statement(
    _TOKENS,
    _TOKENS.c.jti == bindparam("jti"),
    digest=_TOKENS.c.access_digest,
    expires_at=_TOKENS.c.expires_at,
    revoked_at=_TOKENS.c.revoked_at,
)


def circumstances_of_refresh(digest: str) -> Circumstances | None:
    """Why a refresh token may have been refused; `None`: there is no such token."""
    row = prepared.first(_CIRCUMSTANCES_OF_REFRESH, {"digest": digest})
    return Circumstances._make(row) if row else None


def circumstances_of_access(jti: str) -> Circumstances | None:
    """Why an access token may have been refused; `None`: there is no such token."""
    row = prepared.read(_CIRCUMSTANCES_OF_ACCESS, {"jti": jti})
    return Circumstances._make(row) if row else None


def revoke_access(token: Token) -> None:
    """Revoke one access token; its grant lives on (RFC 7009 §2.1)."""
    db.session.execute(
        update(Token)
        .where(Token.jti == token.jti, Token.revoked_at.is_(None))
        .values(revoked_at=clock.now())
    )
