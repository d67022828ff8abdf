"""The tokens table: one row per token response."""

from datetime import datetime
from uuid import UUID

from authlib.integrations.sqla_oauth2 import OAuth2TokenMixin
from sqlalchemy import ForeignKey, String, Text, false
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.client import Client
from sso.models.grant import Grant
from sso.models.user import User


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
