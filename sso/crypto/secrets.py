"""Make, store, compare and encrypt secrets, and sign with them.

A random secret of 256 bits needs no slow hash: SHA-256 is fast and sufficient for it (RFC 9700
§4.14 requires that stored secrets are useless to a thief). Passwords need one: see `passwords`.

Encryption at rest uses keys that are derived from `SSO_SECRET_KEY`. There may be several secret
keys: the first one encrypts, all of them decrypt. So a secret key can be replaced while values that
the previous one encrypted are still stored.

Webhooks are signed as https://www.standardwebhooks.com asks.
"""

import hashlib
import hmac
import secrets
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime

from cryptography.fernet import Fernet, MultiFernet
from cryptography.fernet import InvalidToken as InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from itsdangerous import TimestampSigner, URLSafeTimedSerializer
from standardwebhooks import Webhook as Signer

from sso import clock


class _Signer(TimestampSigner):
    """Takes the time from `clock`."""

    def get_timestamp(self) -> int:
        return clock.timestamp(clock.now())


def serializer(salt: str, *secrets: str) -> URLSafeTimedSerializer:
    """Return a serializer that signs with the last secret, and verifies with any."""
    # ensure_ascii: a `state` that is not UTF-8 has surrogates, which can only be written escaped.
    return URLSafeTimedSerializer(
        list(secrets), salt=salt, signer=_Signer, serializer_kwargs={"ensure_ascii": True}
    )


SecretKeys = str | Sequence[str]


def derive_key(secret_key: str, purpose: str) -> bytes:
    """Derive 32 bytes for one purpose from one secret key (RFC 5869)."""
    hkdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=f"sso {purpose}".encode())
    return hkdf.derive(secret_key.encode())


def derive_keys(secret_keys: SecretKeys, purpose: str) -> list[bytes]:
    """Derive the keys for one purpose; new values use the first one."""
    return [derive_key(secret_key, purpose) for secret_key in _each(secret_keys)]


def encrypt(secret_keys: SecretKeys, purpose: str, clear: bytes) -> str:
    """Encrypt and authenticate a value that is stored in the database."""
    return _fernet(secret_keys, purpose).encrypt(clear).decode()


def decrypt(secret_keys: SecretKeys, purpose: str, encrypted: str) -> bytes:
    """Return the clear bytes. Raises `InvalidToken` if none of the secret keys decrypts them."""
    return _fernet(secret_keys, purpose).decrypt(encrypted)


def reencrypt(secret_keys: SecretKeys, purpose: str, encrypted: str) -> str | None:
    """Encrypt a value with the first secret key; return `None` if it already is.

    Raises `InvalidToken` if none of the secret keys decrypts it.
    """
    try:
        decrypt(_each(secret_keys)[0], purpose, encrypted)
    except InvalidToken:
        return _fernet(secret_keys, purpose).rotate(encrypted).decode()
    return None


def _each(secret_keys: SecretKeys) -> Sequence[str]:
    return (secret_keys,) if isinstance(secret_keys, str) else secret_keys


def _fernet(secret_keys: SecretKeys, purpose: str) -> MultiFernet:
    keys = derive_keys(secret_keys, purpose)
    return MultiFernet([Fernet(urlsafe_b64encode(key)) for key in keys])


# The prefixes let secret scanners recognize leaked secrets.
AUTHORIZATION_CODE = "sso_ac_"
REFRESH_TOKEN = "sso_rt_"  # noqa: S105 (a prefix)
CLIENT_SECRET = "sso_cs_"  # noqa: S105 (a prefix)
DEVICE_CODE = "sso_dc_"
SESSION = "sso_sid_"
MAIL = "sso_ml_"
REQUEST_URI = "sso_par_"
API_TOKEN = "sso_api_"  # noqa: S105 (a prefix)


def make_secret(prefix: str) -> str:
    """Make a secret: the prefix and 256 random bits in base64url."""
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """Return the digest that is stored instead of a secret; it begins with the scheme."""
    return digest_of_hash(hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest())


_SCHEME = "sha256:"


def digest_of_hash(hashed: bytes) -> str:
    """Return the digest of a secret of which only the SHA-256 is known."""
    return _SCHEME + hashed.hex()


def digest_of_foreign_code(hashed: bytes) -> str:
    """Return the digest that is stored for a recovery code of which only the SHA-512 is known."""
    return "sha512-sha256:" + hashlib.sha256(hashed).hexdigest()


def foreign_code_digest(code: str) -> str:
    """Return the digest of a recovery code that another server made; see above."""
    return digest_of_foreign_code(hashlib.sha512(code.encode("utf-8", "surrogatepass")).digest())


SHORTEST = 32  # characters of a secret that somebody else made and a fast digest protects
_FOREIGN = "foreign:"


def digest_of_foreign_secret(hashed: str) -> str:
    """Return what stands for the digest of a secret of which only another server's hash is known.

    No secret matches it. A hash that is a digest already stays.
    """
    if hashed.startswith(_SCHEME):
        return hashed
    return _FOREIGN + hashlib.sha256(hashed.encode()).hexdigest()


def is_foreign(stored: str) -> bool:
    """Return whether a stored digest stands for the hash of another server."""
    return stored.startswith(_FOREIGN)


def matches(secret: str, stored: str) -> bool:
    """Compare a presented secret with a stored digest, in constant time."""
    return hmac.compare_digest(digest(secret).encode(), stored.encode())


def derive_secret(prefix: str, secret: str, key: bytes) -> str:
    """Derive another secret from a secret: always the same one for the same secret and key."""
    raw = hmac.new(key, secret.encode(), hashlib.sha256).digest()
    return prefix + urlsafe_b64encode(raw).rstrip(b"=").decode()


def is_equal(a: str, b: str) -> bool:
    """Compare two texts in constant time."""
    return hmac.compare_digest(a.encode(), b.encode())


_PURPOSE = "webhook secret"


def make_webhook_secret() -> str:
    """Make a secret in the format for receivers."""
    return f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"


def encrypt_webhook_secret(secret_keys: SecretKeys, secret: str) -> str:
    return encrypt(secret_keys, _PURPOSE, secret.encode())


def decrypt_webhook_secret(secret_keys: SecretKeys, encrypted: str) -> str:
    """Return the clear secret. Raises `InvalidToken` if none of the secret keys decrypts it."""
    return decrypt(secret_keys, _PURPOSE, encrypted).decode()


def can_decrypt_webhook_secret(secret_keys: SecretKeys, encrypted: str) -> bool:
    try:
        decrypt_webhook_secret(secret_keys, encrypted)
    except InvalidToken:
        return False
    return True


def reencrypt_webhook_secret(secret_keys: SecretKeys, encrypted: str) -> str | None:
    """Encrypt a secret with the first secret key; return `None` if it already is.

    Raises `InvalidToken` if none of the secret keys decrypts it.
    """
    return reencrypt(secret_keys, _PURPOSE, encrypted)


def webhook_headers(secret: str, message_id: str, at: datetime, body: str) -> dict[str, str]:
    """Return the headers by which the receiver verifies the body."""
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Signer(secret).sign(message_id, at, body),
    }


_SCIM_PURPOSE = "SCIM token"


def encrypt_scim_token(secret_keys: SecretKeys, token: str) -> str:
    return encrypt(secret_keys, _SCIM_PURPOSE, token.encode())


def decrypt_scim_token(secret_keys: SecretKeys, encrypted: str) -> str:
    """Return the clear token. Raises `InvalidToken` if none of the secret keys decrypts it."""
    return decrypt(secret_keys, _SCIM_PURPOSE, encrypted).decode()


def can_decrypt_scim_token(secret_keys: SecretKeys, encrypted: str) -> bool:
    try:
        decrypt_scim_token(secret_keys, encrypted)
    except InvalidToken:
        return False
    return True


def reencrypt_scim_token(secret_keys: SecretKeys, encrypted: str) -> str | None:
    """Encrypt a token with the first secret key; return `None` if it already is.

    Raises `InvalidToken` if none of the secret keys decrypts it.
    """
    return reencrypt(secret_keys, _SCIM_PURPOSE, encrypted)
