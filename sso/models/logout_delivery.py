"""The logout_deliveries table: the outbox of logout tokens."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sso import clock
from sso.models.base import Base, UtcDateTime
from sso.models.client import Client


class LogoutDelivery(Base):
    """One logout token that one client is owed (Back-Channel Logout 1.0 §2.5).

    It is written in the transaction that ended the session. `next_attempt_at` is also the lease of
    the worker that is at it; it is NULL when there is nothing left to do.
    """

    __tablename__ = "logout_deliveries"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    client_id: Mapped[str] = mapped_column(
        ForeignKey("clients.client_id", ondelete="CASCADE"), index=True
    )
    # No foreign keys: the user may be deleted by the very act that ends the session.
    sub: Mapped[str] = mapped_column(String(36))
    sid: Mapped[str] = mapped_column(String(36))
    attempts: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)
    next_attempt_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, default=clock.now, index=True
    )
    delivered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_fault: Mapped[str | None] = mapped_column(String(200))

    client: Mapped[Client] = relationship(lazy="raise")
