"""Statements about tokens, and the decision that a refresh token is used only once."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, exists, select, update
from sqlalchemy.orm import contains_eager

from sso import clock
from sso.extensions import db
from sso.models import Client, Grant, Token, User
from sso.store import clients, grants, prepared, refusals, users
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.redemption import NewToken, Redemption, SingleUse
from sso.store.refusals import RedeemedReasons, RefusalReasons
from sso.store.users import ENABLED, USER_PROFILE, UserProfile

_TOKENS = prepared.table(Token)


@dataclass(frozen=True)
class GrantOfToken:
    """The fields of an access token's grant that `flow.narrowing` needs."""

    scope: str
    amr: str
    ended_at: datetime | None
    claims: dict[str, Any]
    session_is_live: bool
    consented: str | None
    declined: str | None


@dataclass(frozen=True)
class AccessToken:
    """An access token for userinfo, with the methods that Authlib calls."""

    access_digest: str | None
    scope: str
    audience: str | None
    is_narrowed: bool
    dpop_jkt: str | None
    expires_at: datetime
    revoked_at: datetime | None
    grant: GrantOfToken
    client: RegisteredClient
    user: UserProfile

    def get_scope(self) -> str:
        return self.scope

    def is_expired(self) -> bool:
        return self.expires_at <= clock.now()

    def is_revoked(self) -> bool:
        return self.revoked_at is not None or self.grant.ended_at is not None


_ACCESS_TOKEN = grants.join_today(
    select(
        *prepared.columns(AccessToken, _TOKENS, "token_"),
        *prepared.columns(GrantOfToken, prepared.table(Grant), "grant_"),
        *grants.TODAY,
        *clients.COLUMNS,
        *USER_PROFILE,
    )
    .join_from(Token, Grant, Token.grant_id == Grant.id)
    .join(User, User.id == Grant.user_id)
    .join(Client, Client.client_id == Grant.client_id)
).where(Token.jti == bindparam("jti"), ENABLED, Client.disabled_at.is_(None))


def find_access_token(connection: Connection, jti: str) -> AccessToken | None:
    """Return an access token with its client and user, if both are enabled."""
    row = prepared.first(connection, _ACCESS_TOKEN, {"jti": jti, "now": clock.now()})
    if row is None:
        return None
    return prepared.record(
        AccessToken,
        row,
        "token_",
        grant=prepared.record(GrantOfToken, row, "grant_"),
        client=clients.registered_client(row),
        user=users.profile_of(row),
    )


def find_by_jti(jti: str) -> Token | None:
    """Return the token response with this access token, if its user and client are enabled."""
    return db.session.scalar(
        select(Token)
        .join(Token.grant)
        .join(Grant.user)
        .join(Grant.client)
        .options(
            contains_eager(Token.grant).contains_eager(Grant.user),
            contains_eager(Token.grant).contains_eager(Grant.client),
        )
        .where(Token.jti == jti, users.enabled(), Client.disabled_at.is_(None))
    )


def find_by_refresh_digest(digest: str) -> Token | None:
    """Return the token response with this refresh token, used or not, and its grant."""
    return db.session.scalar(
        select(Token)
        .join(Token.grant)
        .options(contains_eager(Token.grant))
        .where(Token.refresh_digest == digest)
        .execution_options(populate_existing=True)
    )


@dataclass(frozen=True)
class PresentedRefresh:
    """A refresh token that a client presents, redeemed or not. It may be another client's."""

    refresh_expires_at: datetime
    refresh_used_at: datetime | None
    dpop_jkt: str | None

    def is_live(self, now: datetime) -> bool:
        """Return whether it is unused and unexpired; `redeem_refresh` makes the decision."""
        return self.refresh_used_at is None and self.refresh_expires_at > now


_FIND_WITH_CLIENT = grants.join_live_grant(
    select(*clients.COLUMNS, *prepared.columns(PresentedRefresh, _TOKENS), *grants.LIVE_GRANT)
    .select_from(Client)
    .outerjoin(_TOKENS, _TOKENS.c.refresh_digest == bindparam("digest")),
    _TOKENS.c.grant_id,
).where(Client.client_id == bindparam("client"), Client.disabled_at.is_(None))


def find_with_client(
    connection: Connection, client_id: str, digest: str, now: datetime
) -> tuple[RegisteredClient | None, PresentedRefresh | None, LiveGrant | None]:
    """Return the enabled client, the refresh token with this digest, redeemed or not, and the
    token's grant, if it belongs to the client and has not ended. One statement.
    """
    values = {"client": client_id, "digest": digest, "now": now}
    row = prepared.first(connection, _FIND_WITH_CLIENT, values)
    if row is None:
        return None, None, None
    presented = prepared.record(PresentedRefresh, row) if row["refresh_expires_at"] else None
    return clients.registered_client(row), presented, grants.live_grant_of(row)


_LIVE_REFRESH = update(_TOKENS).where(
    _TOKENS.c.refresh_digest == bindparam("digest"),
    _TOKENS.c.refresh_used_at.is_(None),
    _TOKENS.c.refresh_expires_at > bindparam("now"),
    exists().where(
        Grant.id == _TOKENS.c.grant_id,
        Grant.client_id == bindparam("client"),
        Grant.ended_at.is_(None),
    ),
)
_REDEMPTION = Redemption(_LIVE_REFRESH.values(refresh_used_at=bindparam("now")))
_PROLONGATION = Redemption(_LIVE_REFRESH.values(refresh_expires_at=bindparam("until")))


def redeem_refresh(
    connection: Connection,
    digest: str,
    client_id: str,
    token: NewToken,
    until: datetime | None,
    use: SingleUse | None = None,
) -> bool:
    """Redeem a refresh token, or prolong it if there is `until`, and store the token response.

    Return False unless it is unused, unexpired and this client's, and its grant has not ended.
    Atomic. `use` counts together with it. Raises `TooManyUsed` and `UsedBefore`.
    """
    values = {"digest": digest, "client": client_id, "now": token.issued_at}
    if until is None:
        return _REDEMPTION.run(connection, token, values, use)
    return _PROLONGATION.run(connection, token, {**values, "until": until}, use)


@dataclass(frozen=True)
class RedeemedRefresh(RedeemedReasons):
    """A refresh token that was used before, and whether its successor is stored and used."""

    has_successor: bool
    successor_used_at: datetime | None


_SUCCESSORS = _TOKENS.alias("successors")
_FIND_REDEEMED_REFRESH = (
    refusals.find_redeemed(_TOKENS, _TOKENS.c.refresh_digest, _TOKENS.c.refresh_used_at)
    .add_columns(
        _SUCCESSORS.c.jti.is_not(None).label("has_successor"),
        _SUCCESSORS.c.refresh_used_at.label("successor_used_at"),
    )
    .outerjoin(
        _SUCCESSORS,
        (_SUCCESSORS.c.refresh_digest == bindparam("successor"))
        & (_SUCCESSORS.c.grant_id == _TOKENS.c.grant_id),
    )
)


def find_redeemed_refresh(
    connection: Connection, digest: str, client_id: str, successor: str
) -> RedeemedRefresh | None:
    """Return a refresh token of this client that was used before, if its grant has not ended.

    `successor` is the digest of the token that it was exchanged for.
    """
    values = {"digest": digest, "client": client_id, "successor": successor}
    row = prepared.first(connection, _FIND_REDEEMED_REFRESH, values)
    return prepared.record(RedeemedRefresh, row) if row else None


_REASONS_OF_REFRESH = refusals.find_reasons(
    _TOKENS,
    _TOKENS.c.refresh_digest == bindparam("digest"),
    digest=_TOKENS.c.refresh_digest,
    expires_at=_TOKENS.c.refresh_expires_at,
    used_at=_TOKENS.c.refresh_used_at,
)
_REASONS_OF_ACCESS = refusals.find_reasons(
    _TOKENS,
    _TOKENS.c.jti == bindparam("jti"),
    digest=_TOKENS.c.access_digest,
    expires_at=_TOKENS.c.expires_at,
    revoked_at=_TOKENS.c.revoked_at,
    scope=_TOKENS.c.scope,
)


def refusal_reasons_of_refresh(connection: Connection, digest: str) -> RefusalReasons | None:
    """Return the reasons to refuse a refresh token; `None`: there is no such token."""
    row = prepared.first(connection, _REASONS_OF_REFRESH, {"digest": digest})
    return prepared.record(RefusalReasons, row) if row else None


def refusal_reasons_of_access(connection: Connection, jti: str) -> RefusalReasons | None:
    """Return the reasons to refuse an access token; `None`: there is no such token."""
    row = prepared.first(connection, _REASONS_OF_ACCESS, {"jti": jti})
    return prepared.record(RefusalReasons, row) if row else None


def revoke_access(token: Token) -> None:
    """Revoke one access token, but not its grant (RFC 7009 §2.1)."""
    db.session.execute(
        update(Token)
        .where(Token.jti == token.jti, Token.revoked_at.is_(None))
        .values(revoked_at=clock.now())
    )
