"""The tables of grants: one approval, and everything that it gave hangs on it.

Codes are stored as digests, and count once; a row of `tokens` is one token response. Consents,
pushed authorization requests (RFC 9126) and identifiers that count only once, such as the `jti` of
an assertion, belong to the way to a grant.
"""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from authlib.integrations.sqla_oauth2 import OAuth2AuthorizationCodeMixin, OAuth2TokenMixin
from sqlalchemy import JSON, ForeignKey, Index, String, Text, false
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.clients import Client
from sso.models.users import BrowserSession, User


class Grant(Base):
    """One approval of one client by one user. Ending it ends its codes and tokens."""

    __tablename__ = "grants"
    # A user's newest grants are counted whenever one is added (see `store.grants`).
    __table_args__ = (Index("ix_grants_user_id_created_at", "user_id", "created_at"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    client_id: Mapped[str] = mapped_column(
        ForeignKey("clients.client_id", ondelete="CASCADE"), index=True
    )
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

    # Loaded by the statement that needs them, never behind one's back.
    user: Mapped[User] = relationship(lazy="raise")
    client: Mapped[Client] = relationship(lazy="raise")
    session: Mapped[BrowserSession | None] = relationship(lazy="raise")


class AuthorizationCode(Base, OAuth2AuthorizationCodeMixin):
    """A code (RFC 6749 §4.1.2); the used row stays until it is purged, so that reuse is seen."""

    __tablename__ = "authorization_codes"

    # Authlib's mixin keeps the code in clear: `digest` takes its place.
    code = None
    # It takes `auth_time` for the moment of issue: `expires_at` takes its place.
    auth_time = None
    # These are the grant's, or always the same.
    client_id = scope = acr = amr = response_type = code_challenge_method = None

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    grant_id: Mapped[UUID] = mapped_column(ForeignKey("grants.id", ondelete="CASCADE"), index=True)
    redirect_uri: Mapped[str] = mapped_column(Text)
    nonce: Mapped[str | None] = mapped_column(Text)
    code_challenge: Mapped[str | None] = mapped_column(String(43))
    # The key that alone may redeem it (RFC 9449 §10): its thumbprint.
    dpop_jkt: Mapped[str | None] = mapped_column(String(43))
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


class Token(Base, OAuth2TokenMixin):
    """One token response: the access token by its `jti`, the refresh token by its digest.

    A repeated refresh within the leeway gives a row without a refresh digest: its refresh token
    stands in the row of the first.
    """

    __tablename__ = "tokens"

    # Authlib's mixin keeps both tokens in clear: `access_digest` and `refresh_digest` take their
    # place, and `expires_at`, `revoked_at` and `refresh_used_at` that of its numbers of seconds.
    access_token = refresh_token = None
    access_token_revoked_at = refresh_token_revoked_at = expires_in = None
    # These are the grant's, or always the same.
    client_id = token_type = None

    jti: Mapped[str] = mapped_column(String(43), primary_key=True)
    grant_id: Mapped[UUID] = mapped_column(ForeignKey("grants.id", ondelete="CASCADE"), index=True)
    # Empty in rows that an older version wrote.
    access_digest: Mapped[str | None] = mapped_column(String(80))
    scope: Mapped[str] = mapped_column(Text)
    # The API that the access token is for; empty for this server's userinfo.
    audience: Mapped[str | None] = mapped_column(String(255))
    # The client asked for less than the grant allows (RFC 6749 §6): single claims are limited, too.
    is_narrowed: Mapped[bool] = mapped_column(default=False, server_default=false())
    # The key that the access token is bound to (RFC 9449 §6), as is the refresh token of a public
    # client: its thumbprint.
    dpop_jkt: Mapped[str | None] = mapped_column(String(43))
    issued_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    refresh_digest: Mapped[str | None] = mapped_column(String(80), unique=True)
    refresh_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    refresh_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    grant: Mapped[Grant] = relationship(lazy="raise")

    def check_client(self, client: Client) -> bool:
        return self.grant.client_id == client.client_id

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
    """The scopes that a user allowed a client, and those that were unticked.

    `updated_at` is when it was last given.
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
    """The parameters that a client pushed; `digest` is that of the secret in its request URI."""

    __tablename__ = "pushed_requests"

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), index=True
    )
    # JSON as text: `state` may hold what a JSON column does not take.
    parameters: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    # Once the user has come to a page of ours; until then, an expired row is of no use.
    waits_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class WaitingSignIn(Base):
    """An authorization request that waits for a sign-in at a provider, too long for a cookie.

    `digest` is that of the sign-in's state; `resume` is the signed request.
    """

    __tablename__ = "waiting_sign_ins"

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), index=True
    )
    resume: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class UsedOnce(Base):
    """One identifier that was used; the row is kept as long as it could be presented again."""

    __tablename__ = "used_once"
    __table_args__ = (Index(None, "holder", "expires_at"),)

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    holder: Mapped[str] = mapped_column(String(80))  # a client, or a key's thumbprint
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
