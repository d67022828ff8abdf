"""The recovery_codes table: single-use codes for who has lost the other factors."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.user import User


class RecoveryCode(Base):
    """One code of a user's sheet, as a digest."""

    __tablename__ = "recovery_codes"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
