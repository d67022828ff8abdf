"""Statements about webhooks and their deliveries."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Select, delete, func, or_, select, update

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import Webhook, WebhookDelivery
from sso.store import lists
from sso.store.lists import Match, Order, write, write_one
from sso.store.outbox import Outbox

GIVE_UP_AFTER = timedelta(days=3)
outbox = Outbox(
    WebhookDelivery,
    timedelta(seconds=5),
    give_up_after=GIVE_UP_AFTER,
    lease=timedelta(seconds=32),  # four times what a delivery may take
)
NEWEST_DELIVERIES = Order((WebhookDelivery.created_at, WebhookDelivery.id), is_descending=True)


class Claimed(NamedTuple):
    """A webhook, and its deliveries that are to be tried now."""

    webhook: Webhook
    deliveries: Sequence[WebhookDelivery]


def claim(most_of_each: int, until: datetime) -> list[Claimed]:
    """Claim the deliveries that are due, oldest first: no other worker gets them before `until`.

    After a failed attempt, a webhook gets one delivery at a time, after a pause: a receiver that is
    down does not delay the others.
    """
    now = clock.now()
    due = select(WebhookDelivery.webhook_id).where(WebhookDelivery.next_attempt_at <= now)
    webhooks = db.session.scalars(
        select(Webhook)
        .where(
            Webhook.id.in_(due),
            or_(
                Webhook.retry_at.is_(None),
                Webhook.retry_at <= now,
                Webhook.disabled_at.is_not(None),
            ),
        )
        .order_by(Webhook.id)
        .execution_options(populate_existing=True)
    ).all()
    claimed = []
    for webhook in webhooks:
        is_failing = webhook.failing_since is not None and webhook.disabled_at is None
        rows = outbox.claim(
            1 if is_failing else most_of_each, until, WebhookDelivery.webhook_id == webhook.id
        )
        if rows:
            claimed.append(Claimed(webhook, sorted(rows, key=lambda row: row.created_at)))
    return claimed


def set_disabled(webhook: Webhook, is_disabled: bool, reason: str | None = None) -> None:
    """Disable a webhook, since now unless it already is, for this reason; or enable it."""
    webhook.disabled_at = (webhook.disabled_at or clock.now()) if is_disabled else None
    webhook.disabled_reason = reason


def note_success(webhook_id: UUID) -> None:
    """Record that the receiver accepted a delivery: it no longer fails."""
    write(
        update(Webhook)
        .where(Webhook.id == webhook_id, Webhook.failing_since.is_not(None))
        .values(failing_since=None, failures=0, retry_at=None)
    )


def note_failure(webhook_id: UUID) -> Webhook | None:
    """Record a failed attempt; return the webhook, locked, or `None` if it is deleted."""
    now = clock.now()
    webhook = lock(webhook_id)
    if webhook:
        webhook.failing_since = webhook.failing_since or now
        webhook.failures += 1
        webhook.retry_at = now + outbox.pause(webhook.failures)
        db.session.flush()
    return webhook


def lock(webhook_id: UUID) -> Webhook | None:
    """Lock a webhook until the transaction ends, and return its current row."""
    return dialects.lock(Webhook, Webhook.failures, Webhook.id == webhook_id)


def find(webhook_id: UUID) -> Webhook | None:
    return db.session.get(Webhook, webhook_id)


def every() -> Sequence[Webhook]:
    """Return all webhooks, oldest first."""
    return db.session.scalars(select(Webhook).order_by(Webhook.created_at, Webhook.id)).all()


def matching(text: str) -> Match[Webhook]:
    """Return the webhooks that an operator may mean: by id; else by URL; else by the beginning of
    an id.
    """
    return lists.matching(every(), text, lambda webhook: webhook.url, by_part_of_name=False)


def add(webhook: Webhook) -> None:
    db.session.add(webhook)
    db.session.flush()


def remove(webhook_id: UUID) -> None:
    """Delete a webhook with its deliveries (by foreign key)."""
    write(delete(Webhook).where(Webhook.id == webhook_id))


def replace_secret(webhook_id: UUID, before: str, after: str) -> bool:
    """Store the new encryption of a secret; return False if another process has changed it."""
    is_unchanged = (Webhook.id == webhook_id, Webhook.sealed_secret == before)
    return write_one(update(Webhook).where(*is_unchanged).values(sealed_secret=after))


def newest_deliveries(webhook_id: UUID, limit: int) -> Sequence[WebhookDelivery]:
    """Return the newest deliveries of a webhook, newest first."""
    return db.session.scalars(
        select(WebhookDelivery)
        .where(WebhookDelivery.webhook_id == webhook_id)
        .order_by(WebhookDelivery.created_at.desc(), WebhookDelivery.id)
        .limit(limit)
    ).all()


def deliveries_of(webhook_id: UUID, *conditions: ColumnElement[bool]) -> Select[WebhookDelivery]:
    """Select the deliveries of a webhook, to be ordered by `NEWEST_DELIVERIES`."""
    return select(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id, *conditions)


def is_delivered() -> ColumnElement[bool]:
    return WebhookDelivery.delivered_at.is_not(None)


def is_waiting() -> ColumnElement[bool]:
    return WebhookDelivery.delivered_at.is_(None) & WebhookDelivery.next_attempt_at.is_not(None)


def is_given_up() -> ColumnElement[bool]:
    return WebhookDelivery.delivered_at.is_(None) & WebhookDelivery.next_attempt_at.is_(None)


def find_delivery(delivery_id: UUID) -> WebhookDelivery | None:
    return db.session.get(WebhookDelivery, delivery_id)


def lock_delivery(delivery_id: UUID) -> WebhookDelivery | None:
    """Lock a delivery until the transaction ends. Lock its webhook before."""
    return dialects.lock(
        WebhookDelivery, WebhookDelivery.attempts, WebhookDelivery.id == delivery_id
    )


def waiting_counts() -> Mapping[UUID, int]:
    """Return the number of waiting deliveries by webhook."""
    rows: Any = db.session.execute(
        select(WebhookDelivery.webhook_id, func.count())
        .where(WebhookDelivery.waits())
        .group_by(WebhookDelivery.webhook_id)
    )
    return dict(rows.all())
