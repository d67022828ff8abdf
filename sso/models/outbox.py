"""The tables of the worker: mails, logout tokens, webhooks with their deliveries, heartbeats."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, ColumnElement, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.clients import Client

_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)


class OutboxEntry:
    """An entry of an outbox. `next_attempt_at` is also the lease of the worker that tries it; NULL:
    it is delivered or given up.
    """

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4, sort_order=-1)
    attempts: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)
    next_attempt_at: Mapped[datetime | None] = mapped_column(
        UtcDateTime, default=clock.now, index=True
    )
    delivered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_fault: Mapped[str | None] = mapped_column(String(200))

    @classmethod
    def waits(cls) -> ColumnElement[bool]:
        """Select entries that are still to be delivered.

        This is a range, because SQLite reads the whole table for `IS NOT NULL`.
        """
        return cls.next_attempt_at > _BEFORE_ALL


class Mail(OutboxEntry, Base):
    """A mail in the outbox; its text and its link are created when it is sent.

    It is written in the transaction of its cause. A request from a stranger is written whether
    there is an account with this email address or not; the worker decides.
    """

    __tablename__ = "mails"

    kind: Mapped[str] = mapped_column(String(40))
    address: Mapped[str] = mapped_column(String(320), index=True)
    # Not a foreign key: the user may be deleted before the mail is sent.
    user_id: Mapped[UUID | None]
    details: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)


class Heartbeat(Base):
    """When a process of this name, such as `worker`, last ran."""

    __tablename__ = "heartbeats"

    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class LogoutDelivery(OutboxEntry, Base):
    """A logout token to be sent to a client (Back-Channel Logout 1.0 §2.5).

    It is written in the transaction that ends the session.
    """

    __tablename__ = "logout_deliveries"
    # Whether a token is queued already is asked for each grant that ends.
    __table_args__ = (Index("ix_logout_deliveries_client_id_sid", "client_id", "sid"),)

    client_id: Mapped[str] = mapped_column(ForeignKey("clients.client_id", ondelete="CASCADE"))
    # Not foreign keys: the transaction that ends the session may delete the user.
    sub: Mapped[str] = mapped_column(String(36))
    sid: Mapped[str] = mapped_column(String(36))
    # What the client knows the user by, unless that is the user's ID.
    subject: Mapped[str | None] = mapped_column(String(255))

    client: Mapped[Client] = relationship(lazy="raise")


class Webhook(Base):
    """A receiver of events, and the result of the last attempts."""

    __tablename__ = "webhooks"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    url: Mapped[str] = mapped_column(String(2000))
    events: Mapped[list[str]] = mapped_column(JSON)
    sealed_secret: Mapped[str] = mapped_column(String(300))
    disabled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    disabled_reason: Mapped[str | None] = mapped_column(String(200))
    # The time of the first failure after the last success.
    failing_since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    failures: Mapped[int] = mapped_column(default=0)
    retry_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)


class WebhookDelivery(OutboxEntry, Base):
    """An event to be sent to a webhook, written in the transaction of its cause.

    `id` is the webhook-id; `body` is the same at each attempt.
    """

    __tablename__ = "webhook_deliveries"
    __table_args__ = (Index(None, "webhook_id", "created_at"),)

    webhook_id: Mapped[UUID] = mapped_column(ForeignKey(Webhook.id, ondelete="CASCADE"))
    event: Mapped[str] = mapped_column(String(60))
    body: Mapped[str] = mapped_column(Text)
    attempted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_status: Mapped[int | None]
