"""The table of access tokens that services get for themselves (RFC 6749 §4.4)."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base, UtcDateTime
from sso.models.clients import Client


class ServiceToken(Base):
    """An access token of a client, without a person: no grant, no session, no refresh token."""

    __tablename__ = "service_tokens"
    # Those of a client are counted, and end with it.
    __table_args__ = (Index("ix_service_tokens_client_id_expires_at", "client_id", "expires_at"),)

    jti: Mapped[str] = mapped_column(String(43), primary_key=True)
    client_id: Mapped[str] = mapped_column(ForeignKey(Client.client_id, ondelete="CASCADE"))
    # The API that it is for.
    audience: Mapped[str] = mapped_column(String(255))
    scope: Mapped[str] = mapped_column(Text)
    access_digest: Mapped[str] = mapped_column(String(80))
    # The key that it is bound to (RFC 9449 §6): its thumbprint.
    dpop_jkt: Mapped[str | None] = mapped_column(String(43))
    issued_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
