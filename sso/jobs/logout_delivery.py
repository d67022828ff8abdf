"""Delivers logout tokens from the outbox (Back-Channel Logout 1.0 §2.5)."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from sso import audit, clock
from sso.audit.events import Event
from sso.extensions import db
from sso.jobs import logout_token
from sso.jobs.http_post import SECONDS, PostFault, post_form
from sso.models import LogoutDelivery
from sso.store import logout_deliveries

logger = logging.getLogger("sso.jobs")

AT_ONCE = 16
# A worker that dies leaves its deliveries to others after this time.
LEASE = timedelta(seconds=3 * SECONDS)
FIRST_PAUSE = timedelta(seconds=2)
LONGEST_PAUSE = timedelta(minutes=30)
GIVE_UP_AFTER = timedelta(days=1)


def deliver_due() -> int:
    """Try what is due, some at once, so that a client that hangs holds up no other. Commits.

    Tells how many attempts there were.
    """
    claimed = logout_deliveries.outbox.claim(AT_ONCE, until=clock.now() + LEASE)
    posts = [_post(delivery) for delivery in claimed]
    db.session.commit()
    if not claimed:
        return 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        faults = list(pool.map(_try, posts))
    _settle(claimed, faults)
    db.session.commit()
    return len(claimed)


def next_attempt(created_at: datetime, attempts: int, now: datetime) -> datetime | None:
    """When to try again after so many attempts: pauses double; a day after the first, never."""
    pause = min(FIRST_PAUSE * 2 ** min(attempts - 1, 20), LONGEST_PAUSE)
    return now + pause if now + pause <= created_at + GIVE_UP_AFTER else None


def _post(delivery: LogoutDelivery) -> tuple[str | None, str]:
    if delivery.client.disabled_at is not None:
        return None, ""
    return delivery.client.backchannel_logout_uri, logout_token.make(delivery)


def _try(post: tuple[str | None, str]) -> str | None:
    """Why the client did not take it, or `None`."""
    url, token = post
    if url is None:
        return None  # the client takes no logout tokens any more: nothing is owed
    try:
        post_form(url, {"logout_token": token})
    except PostFault as fault:
        return str(fault)
    return None


def _settle(claimed: Sequence[LogoutDelivery], faults: Sequence[str | None]) -> None:
    now = clock.now()
    for delivery, fault in zip(claimed, faults, strict=True):
        again_at = next_attempt(delivery.created_at, delivery.attempts, now) if fault else None
        logout_deliveries.outbox.settle(
            delivery.id, delivered=fault is None, again_at=again_at, fault=fault
        )
        known = {"client": delivery.client_id, "user": delivery.sub, "sid": delivery.sid}
        if fault is None:
            audit.event(Event.LOGOUT_DELIVERED, attempts=delivery.attempts, **known)
        elif again_at is None:
            audit.event(Event.LOGOUT_GIVEN_UP, attempts=delivery.attempts, fault=fault, **known)
        else:
            logger.warning(
                "logout token for client %s: %s; attempt %d, again at %s",
                delivery.client_id, fault, delivery.attempts, again_at.isoformat(" ", "seconds"),
            )  # fmt: skip
