"""The refusals table: refused requests and error pages, for `flask explain`."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import ForeignKey, Index, SmallInteger, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base, UtcDateTime
from sso.models.client import Client
from sso.models.user import User


class Refusal(Base):
    """One refused request. Kept for some days, and only the newest of each `bucket`.

    `user_id` is set only where the cause lies with the user, such as a missing group.
    """

    __tablename__ = "refusals"
    __table_args__ = (Index(None, "bucket", "at"), Index(None, "client_id", "at"))

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    # Not unique: a request may bring an id of its own.
    request_id: Mapped[str] = mapped_column(String(64), index=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    bucket: Mapped[int] = mapped_column(SmallInteger)
    name: Mapped[str] = mapped_column(String(60))
    endpoint: Mapped[str | None] = mapped_column(String(40))
    client_id: Mapped[str | None] = mapped_column(ForeignKey(Client.client_id, ondelete="CASCADE"))
    user_id: Mapped[UUID | None] = mapped_column(
        ForeignKey(User.id, ondelete="CASCADE"), index=True
    )
    details: Mapped[str] = mapped_column(Text)  # JSON
