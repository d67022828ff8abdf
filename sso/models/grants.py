"""The tables of grants: approvals, with the codes and tokens that belong to them.

Codes are stored as digests, and used once; a row of `tokens` is one token response. Other tables
hold what leads to a grant: consents, pushed authorization requests (RFC 9126), device
authorizations (RFC 8628) and identifiers that can be used only once, such as the `jti` of an
assertion.
"""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from authlib.integrations.sqla_oauth2 import OAuth2AuthorizationCodeMixin, OAuth2TokenMixin
from sqlalchemy import JSON, ForeignKey, Index, String, Text, false, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.clients import MAX_CLIENT_ID, Client
from sso.models.users import BrowserSession, User


class Grant(Base):
    """One approval of one client by one user. Ending it ends its codes and tokens."""

    __tablename__ = "grants"
    __table_args__ = (
        # A user's newest grants are counted whenever one is added (see `store.approvals`).
        Index("ix_grants_user_id_created_at", "user_id", "created_at"),
        # The worker ends the grants of a client in this order (see `store.client_work`).
        Index("ix_grants_client_id_id", "client_id", "id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    client_id: Mapped[str] = mapped_column(ForeignKey("clients.client_id", ondelete="CASCADE"))
    # The session may be purged before a grant with offline_access ends; `sid` stays.
    session_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("browser_sessions.id", ondelete="SET NULL"), index=True
    )
    sid: Mapped[str] = mapped_column(String(36))
    scope: Mapped[str] = mapped_column(Text)
    claims: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    auth_time: Mapped[datetime] = mapped_column(UtcDateTime)
    amr: Mapped[str] = mapped_column(String(100))
    acr: Mapped[str | None] = mapped_column(String(20))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    end_reason: Mapped[str | None] = mapped_column(String(40))

    # Only a statement that joins them loads them; a lazy load raises an exception.
    user: Mapped[User] = relationship(lazy="raise")
    client: Mapped[Client] = relationship(lazy="raise")
    session: Mapped[BrowserSession | None] = relationship(lazy="raise")


class AuthorizationCode(Base, OAuth2AuthorizationCodeMixin):
    """A code (RFC 6749 §4.1.2). Used rows stay until they are purged, so that reuse is detected."""

    __tablename__ = "authorization_codes"

    # Authlib's mixin stores the code in clear: `digest` replaces it.
    code = None
    # The mixin uses `auth_time` as the time of issue: `expires_at` replaces it.
    auth_time = None
    # These belong to the grant, or are always the same.
    client_id = scope = acr = amr = response_type = code_challenge_method = None

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    grant_id: Mapped[UUID] = mapped_column(ForeignKey("grants.id", ondelete="CASCADE"), index=True)
    redirect_uri: Mapped[str] = mapped_column(Text)
    nonce: Mapped[str | None] = mapped_column(Text)
    code_challenge: Mapped[str | None] = mapped_column(String(43))
    # The thumbprint of the only key that may redeem the code (RFC 9449 §10).
    dpop_jkt: Mapped[str | None] = mapped_column(String(43))
    # The user allowed access once: it gives no refresh token.
    once: Mapped[bool] = mapped_column(default=False, server_default=false())
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    grant: Mapped[Grant] = relationship(lazy="raise")

    def is_expired(self) -> bool:
        return self.expires_at <= clock.now()

    def get_scope(self) -> str:
        return self.grant.scope

    def get_auth_time(self) -> int:
        return clock.timestamp(self.grant.auth_time)

    def get_acr(self) -> str | None:
        return self.grant.acr

    def get_amr(self) -> list[str]:
        return self.grant.amr.split()


_IS_EXCHANGED = text("client_id IS NOT NULL")
_IS_WITHOUT_REFRESH = text("refresh_expires_at IS NULL")


class Token(Base, OAuth2TokenMixin):
    """One token response: the access token by its `jti`, the refresh token by its digest.

    A repeated refresh within the leeway makes a row without a refresh digest: its refresh token
    is in the row of the first refresh.
    """

    __tablename__ = "tokens"
    __table_args__ = (
        Index("ix_tokens_client_id", "client_id", postgresql_where=_IS_EXCHANGED,
              sqlite_where=_IS_EXCHANGED),
        # For the purge: each of its batches would read all of these tokens.
        Index("ix_tokens_without_refresh", "expires_at", "jti",
              postgresql_where=_IS_WITHOUT_REFRESH, sqlite_where=_IS_WITHOUT_REFRESH),
    )  # fmt: skip

    # Authlib's mixin stores both tokens in clear: `access_digest` and `refresh_digest` replace
    # them. `expires_at`, `revoked_at` and `refresh_used_at` replace its numbers of seconds.
    access_token = refresh_token = None
    access_token_revoked_at = refresh_token_revoked_at = expires_in = None
    token_type = None  # by whether there is a `dpop_jkt`

    # The client that got it by token exchange (RFC 8693); empty: that of the grant.
    client_id: Mapped[str | None] = mapped_column(String(MAX_CLIENT_ID))
    # The clients that act with an exchanged token, the newest first, with spaces between them.
    actors: Mapped[str | None] = mapped_column(Text)
    jti: Mapped[str] = mapped_column(String(43), primary_key=True)
    grant_id: Mapped[UUID] = mapped_column(ForeignKey("grants.id", ondelete="CASCADE"), index=True)
    # NULL in rows from an older version.
    access_digest: Mapped[str | None] = mapped_column(String(80))
    scope: Mapped[str] = mapped_column(Text)
    # The API that the access token is for; empty for this server's userinfo.
    audience: Mapped[str | None] = mapped_column(String(255))
    # The client requested less than the grant allows (RFC 6749 §6): single claims are limited, too.
    is_narrowed: Mapped[bool] = mapped_column(default=False, server_default=false())
    # The thumbprint of the key that the access token is bound to (RFC 9449 §6), and also the
    # refresh token of a public client.
    dpop_jkt: Mapped[str | None] = mapped_column(String(43))
    # The IP address that requested it; NULL in rows of an older version, and of an exchange.
    address: Mapped[str | None] = mapped_column(String(45))
    issued_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    refresh_digest: Mapped[str | None] = mapped_column(String(80), unique=True)
    refresh_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    refresh_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    grant: Mapped[Grant] = relationship(lazy="raise")

    def check_client(self, client: Client) -> bool:
        return (self.client_id or self.grant.client_id) == client.client_id

    def get_expires_in(self) -> int:
        return int((self.expires_at - self.issued_at).total_seconds())

    def is_expired(self) -> bool:
        return self.expires_at <= clock.now()

    def is_revoked(self) -> bool:
        return self.revoked_at is not None or self.grant.ended_at is not None

    def get_user(self) -> User:
        return self.grant.user

    def get_client(self) -> Client:
        return self.grant.client


class Consent(Base):
    """The scopes that a user allowed a client, and those that the user declined.

    `updated_at` is the time of the last decision.
    """

    __tablename__ = "consents"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), primary_key=True, index=True
    )
    scope: Mapped[str] = mapped_column(Text)
    declined: Mapped[str] = mapped_column(Text, default="", server_default="")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)


class PushedRequest(Base):
    """The parameters that a client pushed; `digest` is of the secret in the request URI."""

    __tablename__ = "pushed_requests"

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    # An agent with a metadata document has no row before a person allows it.
    client_id: Mapped[str] = mapped_column(String(MAX_CLIENT_ID))
    # JSON as text: `state` may have characters that a JSON column refuses.
    parameters: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    # Set when one of our pages is shown to the user; before that, the request ends at `expires_at`.
    waits_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class WaitingSignIn(Base):
    """An authorization request during a sign-in at a provider; it is too long for a cookie.

    `digest` is of the sign-in's `state`; `resume` is the signed request.
    """

    __tablename__ = "waiting_sign_ins"

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), index=True
    )
    resume: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class UsedOnce(Base):
    """A used identifier; the row is kept as long as it could be presented again."""

    __tablename__ = "used_once"
    __table_args__ = (Index(None, "holder", "expires_at"),)

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    holder: Mapped[str] = mapped_column(String(80))  # a client, or a key's thumbprint
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class DeviceCode(Base):
    """A device that waits for a user; the used row stays until it is purged, so that reuse is seen.

    `scope` and `resource` are those of the request. `answered_at` without a grant is a refusal.
    """

    __tablename__ = "device_codes"

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    # Keyed: there are few codes (see `crypto.user_codes`).
    user_code_digest: Mapped[str] = mapped_column(String(80), unique=True)
    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), index=True
    )
    scope: Mapped[str | None] = mapped_column(Text)
    resource: Mapped[str | None] = mapped_column(Text)
    # The origin of the request, shown to the user.
    address: Mapped[str] = mapped_column(String(45))
    program: Mapped[str] = mapped_column(String(60))
    # Seconds between two polls; longer for a device that polls too often.
    interval: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    answered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    grant_id: Mapped[UUID | None] = mapped_column(
        ForeignKey(Grant.id, ondelete="CASCADE"), index=True
    )
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
