"""The mails table: the outbox of mails."""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, String
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.models.base import Base, UtcDateTime


class Mail(Base):
    """One mail that is owed to an address; its text and its link are made when it is sent.

    It is written in the transaction of its cause. A stranger's request is written whether the
    address is known or not; the worker finds out. `next_attempt_at` is also the lease of the worker
    that is at it; it is NULL when there is nothing left to do.
    """

    __tablename__ = "mails"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    kind: Mapped[str] = mapped_column(String(40))
    address: Mapped[str] = mapped_column(String(320), index=True)
    # No foreign key: it is looked up when the mail is sent, and the user may be gone by then.
    user_id: Mapped[UUID | None]
    details: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    attempts: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)
    next_attempt_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, default=clock.now, index=True
    )
    delivered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_fault: Mapped[str | None] = mapped_column(String(200))
