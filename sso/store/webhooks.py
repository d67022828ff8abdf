"""Statements about webhooks and their deliveries."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import delete, func, or_, select, update

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import Webhook, WebhookDelivery
from sso.store import lists
from sso.store.lists import Match, write
from sso.store.outbox import Outbox

GIVE_UP_AFTER = timedelta(days=3)
outbox = Outbox(WebhookDelivery, timedelta(seconds=5), give_up_after=GIVE_UP_AFTER)


class Claimed(NamedTuple):
    """A webhook, and those of its deliveries that are to be tried now."""

    webhook: Webhook
    deliveries: Sequence[WebhookDelivery]


def claim(most_of_each: int, until: datetime) -> list[Claimed]:
    """Take what is due, oldest first; until that moment no other worker takes it.

    Of a webhook whose last attempt failed, it is one delivery, once in a while: a receiver that is
    down does not hold up the others.
    """
    now = clock.now()
    due = select(WebhookDelivery.webhook_id).where(WebhookDelivery.next_attempt_at <= now)
    found = db.session.scalars(
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
    for webhook in found:
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
    """The receiver took something: it is not failing."""
    write(
        update(Webhook)
        .where(Webhook.id == webhook_id, Webhook.failing_since.is_not(None))
        .values(failing_since=None, failures=0, retry_at=None)
    )


def note_failure(webhook_id: UUID) -> Webhook | None:
    """An attempt failed; the webhook, locked, or `None` if it is gone."""
    now = clock.now()
    webhook = lock(webhook_id)
    if webhook:
        webhook.failing_since = webhook.failing_since or now
        webhook.failures += 1
        webhook.retry_at = now + outbox.pause(webhook.failures)
        db.session.flush()
    return webhook


def lock(webhook_id: UUID) -> Webhook | None:
    """A webhook as the row is now, and stays until the transaction ends."""
    return dialects.lock(Webhook, Webhook.failures, Webhook.id == webhook_id)


def every() -> Sequence[Webhook]:
    """All webhooks, oldest first."""
    return db.session.scalars(select(Webhook).order_by(Webhook.created_at, Webhook.id)).all()


def matching(text: str) -> Match[Webhook]:
    """The webhooks that an operator may mean: by id; else by URL; else by how the id begins."""
    webhooks = every()
    if exact := [webhook for webhook in webhooks if str(webhook.id) == text.strip().lower()]:
        return Match(exact, is_exact=True)
    return lists.named(
        webhooks, text, lambda row: str(row.id), lambda row: row.url, by_part_of_name=False
    )


def add(webhook: Webhook) -> None:
    db.session.add(webhook)
    db.session.flush()


def remove(webhook_id: UUID) -> None:
    """Delete a webhook with its deliveries (by foreign key)."""
    write(delete(Webhook).where(Webhook.id == webhook_id))


def replace_sealed(webhook_id: UUID, before: str, after: str) -> bool:
    """Store a secret's other encryption."""
    meant = (Webhook.id == webhook_id, Webhook.sealed_secret == before)
    return write(update(Webhook).where(*meant).values(sealed_secret=after)) == 1


def newest_deliveries(webhook_id: UUID, limit: int) -> Sequence[WebhookDelivery]:
    """The newest deliveries of a webhook, newest first."""
    return db.session.scalars(
        select(WebhookDelivery)
        .where(WebhookDelivery.webhook_id == webhook_id)
        .order_by(WebhookDelivery.created_at.desc(), WebhookDelivery.id)
        .limit(limit)
    ).all()


def waiting_counts() -> Mapping[UUID, int]:
    """How many deliveries wait, by webhook."""
    rows: Any = db.session.execute(
        select(WebhookDelivery.webhook_id, func.count())
        .where(WebhookDelivery.next_attempt_at.is_not(None))
        .group_by(WebhookDelivery.webhook_id)
    )
    return dict(rows.all())
