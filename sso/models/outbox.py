"""The tables of the worker: mails, logout tokens and webhooks that wait, and its heartbeat."""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.clients import Client


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


class LogoutDelivery(OutboxEntry, Base):
    """One logout token to be sent to a client (Back-Channel Logout 1.0 §2.5).

    It is written in the transaction that ended the session.
    """

    __tablename__ = "logout_deliveries"

    client_id: Mapped[str] = mapped_column(
        ForeignKey("clients.client_id", ondelete="CASCADE"), index=True
    )
    # No foreign keys: the user may be deleted by the very act that ends the session.
    sub: Mapped[str] = mapped_column(String(36))
    sid: Mapped[str] = mapped_column(String(36))

    client: Mapped[Client] = relationship(lazy="raise")


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
