"""Random secrets: make, digest, compare in constant time.

A secret of 256 random bits needs no slow hash: SHA-256 is fast and sound for it (RFC 9700 §4.14
asks for storage that is useless to a thief). Passwords are another matter: see `passwords`.
"""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode

# Prefixes let secret scanners recognise what leaked.
AUTHORIZATION_CODE = "sso_ac_"
REFRESH_TOKEN = "sso_rt_"  # noqa: S105 (a prefix)
CLIENT_SECRET = "sso_cs_"  # noqa: S105 (a prefix)
SESSION = "sso_sid_"
MAIL = "sso_ml_"
REQUEST_URI = "sso_par_"
API_TOKEN = "sso_api_"  # noqa: S105 (a prefix)


def make(prefix: str) -> str:
    """A new secret: the prefix and 256 random bits in base64url."""
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """What is stored in place of a secret; the scheme comes first."""
    return "sha256:" + hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def matches(secret: str, stored: str) -> bool:
    """Compare a presented secret with a stored digest, in constant time."""
    return hmac.compare_digest(digest(secret).encode(), stored.encode())


def derive(prefix: str, secret: str, key: bytes) -> str:
    """The successor of a secret: always the same for the same secret and key."""
    raw = hmac.new(key, secret.encode(), hashlib.sha256).digest()
    return prefix + urlsafe_b64encode(raw).rstrip(b"=").decode()


def equal(one: str, other: str) -> bool:
    """Compare two texts in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())
