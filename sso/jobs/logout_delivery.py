"""Deliver logout tokens from the outbox (Back-Channel Logout 1.0 §2.5)."""

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from sso import audit, clock, context
from sso.audit.events import Event
from sso.crypto import keys
from sso.extensions import db
from sso.models import LogoutDelivery
from sso.process.http_call import SECONDS, PostError, post_form
from sso.store import outbox as outboxes

logger = logging.getLogger("sso.jobs")

AT_ONCE = 16
# A worker that dies leaves its deliveries to others after this time.
LEASE = timedelta(seconds=3 * SECONDS)
EVENT = "http://schemas.openid.net/event/backchannel-logout"
LIFETIME = 120  # seconds; §2.4 recommends two minutes at the most


def deliver_due() -> int:
    """Attempt the deliveries that are due, and commit; return the number of attempts.

    Several run at once, so that an unresponsive client does not delay the others.
    """
    claimed = outboxes.LOGOUTS.claim(AT_ONCE, until=clock.now() + LEASE)
    posts = [_post(delivery) for delivery in claimed]
    db.session.commit()
    if not claimed:
        return 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        errors = list(pool.map(_try, posts))
    for delivery, error in zip(claimed, errors, strict=True):
        _record(delivery, error)
    db.session.commit()
    return len(claimed)


def logout_token(delivery: LogoutDelivery) -> str:
    """Create a logout token (§2.4): a new `jti` for each attempt, `sub` and `sid`, no `nonce`."""
    now = clock.timestamp(clock.now())
    claims = {
        "iss": context.settings().issuer_of(delivery.client),
        "aud": delivery.client_id,
        "iat": now,
        "exp": now + LIFETIME,
        "jti": keys.make_jti(),
        "sub": delivery.subject or delivery.sub,
        "sid": delivery.sid,
        "events": {EVENT: {}},
    }
    # §2.6: the same algorithm as for the client's identity tokens.
    alg = delivery.client.id_token_signed_response_alg or "RS256"
    return context.key_ring().sign(claims, alg, "logout+jwt")


def _post(delivery: LogoutDelivery) -> tuple[str | None, str]:
    if delivery.client.disabled_at is not None:
        return None, ""
    return delivery.client.backchannel_logout_uri, logout_token(delivery)


def _try(post: tuple[str | None, str]) -> str | None:
    """Post a logout token; return the error, or `None`."""
    url, token = post
    if url is None:
        return None  # the client no longer receives logout tokens
    try:
        post_form(url, {"logout_token": token})
    except PostError as error:
        return str(error)
    return None


def _record(delivery: LogoutDelivery, error: str | None) -> None:
    outbox = outboxes.LOGOUTS
    fields = {"client": delivery.client_id, "user": delivery.sub, "sid": delivery.sid}
    if error is None:
        outbox.mark_sent(delivery.id)
        audit.event(Event.LOGOUT_DELIVERED, attempts=delivery.attempts, **fields)
    elif again_at := outbox.mark_failed(delivery, error):
        logger.warning(
            "logout token for client %s: %s; attempt %d, again at %s",
            delivery.client_id, error, delivery.attempts, again_at.isoformat(" ", "seconds"),
        )  # fmt: skip
    else:
        audit.event(Event.LOGOUT_GIVEN_UP, attempts=delivery.attempts, fault=error, **fields)
