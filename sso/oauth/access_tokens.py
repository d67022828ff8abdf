"""Access tokens (RFC 9068): signed for everybody, known again here by their digest.

A client, or a resource server of its own, verifies the signature. This server asks its database
anyway, whether a token is revoked; there the digest of the whole token stands, which vouches for it
better than a signature does, and costs nothing.
"""

from datetime import datetime

from sso import clock, context
from sso.crypto import digests, keys
from sso.oauth import unverified
from sso.store.live_grants import LiveGrant

_LONGEST_JTI = 43


def sign(
    jti: str, scope: str, issued_at: datetime, expires_at: datetime, approval: LiveGrant
) -> str:
    """The access token of a row (§2.2). Its audience is this server's userinfo."""
    issuer = context.settings().issuer
    claims = {
        "iss": issuer,
        "aud": issuer,
        "sub": str(approval.user_id),
        "client_id": approval.client_id,
        "jti": jti,
        "scope": scope,
        "iat": clock.timestamp(issued_at),
        "exp": clock.timestamp(expires_at),
        "auth_time": clock.timestamp(approval.auth_time),
    }
    return context.key_ring().sign(claims, keys.ACCESS_TOKEN_ALGORITHM, "at+jwt")


def claimed_jti(token: str) -> str | None:
    """The `jti` that a token claims, or `None` if it is no JWT with one. Nothing is verified."""
    jti = (unverified.claims_of(token) or {}).get("jti")
    # PostgreSQL takes no NUL.
    if not isinstance(jti, str) or len(jti) > _LONGEST_JTI or not jti.isprintable():
        return None
    return jti


def is_genuine(token: str, access_digest: str | None) -> bool:
    """Whether the row with this digest is that of the token, to the letter."""
    if access_digest is None:  # of an older version: it signed the token, and kept no digest
        claims = context.key_ring().verify(token, typ="at+jwt")
        return claims is not None and claims.get("iss") == context.settings().issuer
    return digests.matches(token, access_digest)
