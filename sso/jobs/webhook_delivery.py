"""Deliver events to webhooks from the outbox."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from sso import audit, clock
from sso.extensions import db
from sso.models import Webhook, WebhookDelivery
from sso.process.http_call import SECONDS, PostError
from sso.services import webhooks
from sso.services.webhooks import Receiver
from sso.store import webhooks as stored

logger = logging.getLogger("sso.jobs")

DELIVERIES_AT_ONCE = 20  # of one webhook, sent one after the other
LEASE = stored.outbox.lease
DISABLED_AFTER = stored.GIVE_UP_AFTER
_FAILURES = 20  # the minimum: a quiet webhook is not disabled after two failures in a week
_GONE = 410


class _Attempt(NamedTuple):
    """The result of one attempt. `error` is `None` if the receiver accepted it."""

    status: int | None
    error: str | None
    is_disabled: bool = False


def deliver_due() -> int:
    """Attempt the deliveries that are due, and commit; return the number of deliveries.

    Webhooks are sent to at once, so that an unresponsive receiver does not delay the others.
    """
    claimed = stored.claim(DELIVERIES_AT_ONCE, until=clock.now() + LEASE)
    targets = [Receiver.of(webhook) for webhook, _ in claimed]
    db.session.commit()
    if not claimed:
        return 0
    with ThreadPoolExecutor(len(claimed)) as pool:
        results = list(pool.map(_send, targets, [deliveries for _, deliveries in claimed]))
    by_id = sorted(zip(claimed, results, strict=True), key=lambda pair: pair[0].webhook.id)
    for (webhook, deliveries), attempts in by_id:
        _record_for_webhook(webhook, attempts)
        _record(webhook, deliveries, attempts)
        # One commit for each: two workers that lock several webhooks could deadlock.
        db.session.commit()
    return sum(len(deliveries) for _, deliveries in claimed)


def _send(target: Receiver, deliveries: Sequence[WebhookDelivery]) -> list[_Attempt]:
    """Send deliveries until one fails or time is up; return the attempts."""
    if target.error:
        count = len(deliveries) if target.is_disabled else 1
        return [_Attempt(None, target.error, target.is_disabled)] * count
    attempts: list[_Attempt] = []
    until = time.monotonic() + SECONDS
    for delivery in deliveries:
        attempts.append(_attempt(target, delivery))
        if attempts[-1].error or time.monotonic() >= until:
            break
    return attempts


def _attempt(target: Receiver, delivery: WebhookDelivery) -> _Attempt:
    try:
        status = target.post(delivery.id, delivery.body).status
    except PostError as error:
        return _Attempt(None, str(error))
    if 300 <= status < 400:
        return _Attempt(status, f"it answered {status}; redirects are not followed")
    return _Attempt(status, None if 200 <= status < 300 else f"it answered {status}")


def _record_for_webhook(webhook: Webhook, attempts: Sequence[_Attempt]) -> None:
    """Record success or failure on the webhook, before its deliveries: deletion locks so, too."""
    last = attempts[-1]
    if any(attempt.error is None for attempt in attempts):
        stored.note_success(webhook.id)
    if last.error is None or last.is_disabled:
        return
    current = stored.note_failure(webhook.id)
    if current is None or current.disabled_at is not None:
        return
    since = current.failing_since or clock.now()
    is_late = clock.now() - since >= DISABLED_AFTER and current.failures >= _FAILURES
    if last.status == _GONE or is_late:
        reason = last.error if last.status == _GONE else f"failing since {since:%Y-%m-%d %H:%M} UTC"
        webhooks.disable(audit.SYSTEM, current.id, reason)
        logger.error("webhook %s (%s) is disabled: %s", current.id, current.url, reason)


def _record(
    webhook: Webhook, deliveries: Sequence[WebhookDelivery], attempts: Sequence[_Attempt]
) -> None:
    now = clock.now()
    for delivery, (status, error, is_disabled) in zip(deliveries, attempts, strict=False):
        details = {"last_status": status, "attempted_at": now}
        if error is None:
            stored.outbox.mark_sent(delivery.id, **details)
        elif is_disabled:
            stored.outbox.mark_failed(delivery, error, is_final=True)
        else:
            is_final = status == _GONE
            again_at = stored.outbox.mark_failed(delivery, error, is_final, **details)
            again = f"again at {again_at:%Y-%m-%d %H:%M:%S}" if again_at else "given up"
            logger.warning(
                "webhook %s: %s %s: %s; attempt %d, %s",
                webhook.id, delivery.event, delivery.id, error, delivery.attempts, again,
            )  # fmt: skip
    for delivery in deliveries[len(attempts) :]:
        stored.outbox.release(delivery.id)
