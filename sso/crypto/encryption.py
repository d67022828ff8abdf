"""Keys derived from `SSO_SECRET_KEY`, and encryption at rest with them.

Several secret keys may be given: the first one encrypts, all of them decrypt. So a secret key can
be replaced while values that the previous one encrypted are still stored.
"""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = [
    "InvalidToken", "SecretKeys", "decrypt", "derive_key", "derive_keys", "encrypt", "reencrypt",
]  # fmt: skip

SecretKeys = str | Sequence[str]


@lru_cache(maxsize=256)  # some purposes name a user
def derive_key(secret_key: str, purpose: str) -> bytes:
    """32 bytes for one purpose, from one secret key (RFC 5869)."""
    hkdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=f"sso {purpose}".encode())
    return hkdf.derive(secret_key.encode())


def derive_keys(secret_keys: SecretKeys, purpose: str) -> list[bytes]:
    """The keys for one purpose; the first is the one to use for anything new."""
    return [derive_key(one, purpose) for one in _each(secret_keys)]


def encrypt(secret_keys: SecretKeys, purpose: str, clear: bytes) -> str:
    """Encrypt and authenticate a value that is stored in the database."""
    return _fernet(secret_keys, purpose).encrypt(clear).decode()


def decrypt(secret_keys: SecretKeys, purpose: str, encrypted: str) -> bytes:
    """The clear bytes. Raises `InvalidToken` when none of the secret keys decrypts it."""
    return _fernet(secret_keys, purpose).decrypt(encrypted)


def reencrypt(secret_keys: SecretKeys, purpose: str, encrypted: str) -> str | None:
    """The same, encrypted with the first secret key; `None` if it is already.

    Raises `InvalidToken` when none of the secret keys decrypts it.
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
