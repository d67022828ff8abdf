"""The tables of webhooks: where they go, and the outbox of what is sent there."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import JSON, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.outbox import OutboxEntry


class Webhook(Base):
    """A receiver of events, and how its last attempts went."""

    __tablename__ = "webhooks"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    url: Mapped[str] = mapped_column(String(2000))
    events: Mapped[list[str]] = mapped_column(JSON)
    sealed_secret: Mapped[str] = mapped_column(String(300))
    disabled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    disabled_reason: Mapped[str | None] = mapped_column(String(200))
    # Since the first attempt after the last one that succeeded.
    failing_since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    failures: Mapped[int] = mapped_column(default=0)
    retry_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)


class WebhookDelivery(OutboxEntry, Base):
    """One event on its way to one webhook, written in the transaction of its cause.

    `id` is the webhook-id, and `body` the same at each attempt.
    """

    __tablename__ = "webhook_deliveries"
    __table_args__ = (Index(None, "webhook_id", "created_at"),)

    webhook_id: Mapped[UUID] = mapped_column(ForeignKey(Webhook.id, ondelete="CASCADE"))
    event: Mapped[str] = mapped_column(String(60))
    body: Mapped[str] = mapped_column(Text)
    attempted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_status: Mapped[int | None]
