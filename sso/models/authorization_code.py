"""The authorization_codes table: single-use codes, stored as digests."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sso.extensions import Base, UtcDateTime
from sso.models.grant import Grant


class AuthorizationCode(Base):
    """A code (RFC 6749 §4.1.2); the used row stays until it is purged, so that reuse is seen.

    Authlib's SQLAlchemy mixin is not used: it keeps the code in clear and takes `auth_time` for
    the moment of issue.
    """

    __tablename__ = "authorization_codes"

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    grant_id: Mapped[UUID] = mapped_column(ForeignKey("grants.id", ondelete="CASCADE"), index=True)
    redirect_uri: Mapped[str] = mapped_column(Text)
    nonce: Mapped[str | None] = mapped_column(Text)
    code_challenge: Mapped[str | None] = mapped_column(String(43))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    grant: Mapped[Grant] = relationship(lazy="raise")
