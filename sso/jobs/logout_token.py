"""Logout tokens (Back-Channel Logout 1.0 §2.4)."""

from sso import clock, context
from sso.crypto import keys
from sso.models import LogoutDelivery

EVENT = "http://schemas.openid.net/event/backchannel-logout"
LIFETIME = 120  # seconds; §2.4 recommends two minutes at the most


def make(delivery: LogoutDelivery) -> str:
    """A fresh logout token: its own `jti` at each attempt, `sub` and `sid`, never a `nonce`."""
    now = clock.timestamp(clock.now())
    claims = {
        "iss": context.settings().issuer,
        "aud": delivery.client_id,
        "iat": now,
        "exp": now + LIFETIME,
        "jti": keys.make_jti(),
        "sub": delivery.sub,
        "sid": delivery.sid,
        "events": {EVENT: {}},
    }
    # §2.6: the same algorithm as for the client's identity tokens.
    alg = delivery.client.id_token_signed_response_alg or "RS256"
    return context.key_ring().sign(claims, alg, "logout+jwt")
