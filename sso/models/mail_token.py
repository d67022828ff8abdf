"""The mail_tokens table: the single-use secrets in the links of mails."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.user import User


class MailToken(Base):
    """A secret that was mailed to an address, for one purpose; stored as a digest.

    `user_id` is NULL as long as there is no user (self sign-up). `bound_to` is a digest of what the
    user's address and password were: a change of either kills the token.
    """

    __tablename__ = "mail_tokens"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    digest: Mapped[str] = mapped_column(String(80), unique=True)
    purpose: Mapped[str] = mapped_column(String(20))
    user_id: Mapped[UUID | None] = mapped_column(
        ForeignKey(User.id, ondelete="CASCADE"), index=True
    )
    address: Mapped[str] = mapped_column(String(320))
    bound_to: Mapped[str] = mapped_column(String(80))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Wrong guesses at a short code; a link's secret cannot be guessed.
    failures: Mapped[int] = mapped_column(default=0, server_default="0")
