"""The authorization_codes table: single-use codes, stored as digests."""

from datetime import datetime
from uuid import UUID

from authlib.integrations.sqla_oauth2 import OAuth2AuthorizationCodeMixin
from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.grant import Grant


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
