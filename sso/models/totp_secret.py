"""The totp_secrets table: authenticator apps."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.user import User


class TotpSecret(Base):
    """A user's shared secret (RFC 6238), sealed; the last time step that was accepted."""

    __tablename__ = "totp_secrets"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    sealed_secret: Mapped[str] = mapped_column(Text)
    last_step: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
