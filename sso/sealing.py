"""Keys derived from `SSO_SECRET_KEY`, and what is sealed or signed with them."""

from base64 import urlsafe_b64encode
from functools import cache

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = ["InvalidToken", "derive_key", "seal", "unseal"]


@cache
def derive_key(secret_key: str, purpose: str) -> bytes:
    """32 bytes for one purpose, from the server's secret (RFC 5869)."""
    hkdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=f"sso {purpose}".encode())
    return hkdf.derive(secret_key.encode())


def seal(secret_key: str, purpose: str, clear: bytes) -> str:
    """Encrypt and authenticate what rests in the database."""
    return _fernet(secret_key, purpose).encrypt(clear).decode()


def unseal(secret_key: str, purpose: str, sealed: str) -> bytes:
    """The clear bytes. Raises `InvalidToken` when the secret key is another one."""
    return _fernet(secret_key, purpose).decrypt(sealed)


def _fernet(secret_key: str, purpose: str) -> Fernet:
    return Fernet(urlsafe_b64encode(derive_key(secret_key, purpose)))
