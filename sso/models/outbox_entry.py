"""What the tables that are outboxes share: an entry is tried until it is delivered, or given up."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import UtcDateTime


class OutboxEntry:
    """`next_attempt_at` is also the lease of the worker that is at it; NULL: nothing left to do."""

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4, sort_order=-1)
    attempts: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)
    next_attempt_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, default=clock.now, index=True
    )
    delivered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_fault: Mapped[str | None] = mapped_column(String(200))
