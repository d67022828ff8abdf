"""The worker's tables: the outbox of mails, and its heartbeat.

The outbox of logout tokens is in `logout_delivery`, as it refers to clients.
"""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, String
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime


class OutboxEntry:
    """`next_attempt_at` is also the lease of the worker that tries it; NULL: nothing left to do."""

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4, sort_order=-1)
    attempts: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)
    next_attempt_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, default=clock.now, index=True
    )
    delivered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_fault: Mapped[str | None] = mapped_column(String(200))


class Mail(OutboxEntry, Base):
    """One mail in the outbox; its text and its link are created when it is sent.

    It is written in the transaction of its cause. A stranger's request is written whether the
    email address is known or not; the worker decides.
    """

    __tablename__ = "mails"

    kind: Mapped[str] = mapped_column(String(40))
    address: Mapped[str] = mapped_column(String(320), index=True)
    # No foreign key: it is looked up when the mail is sent, and the user may be gone by then.
    user_id: Mapped[UUID | None]
    details: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)


class Heartbeat(Base):
    """When a process of this name, such as `worker`, last ran."""

    __tablename__ = "heartbeats"

    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
