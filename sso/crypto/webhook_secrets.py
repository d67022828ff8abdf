"""Secrets of webhooks, and signatures with them (https://www.standardwebhooks.com)."""

import secrets
from base64 import b64encode
from datetime import datetime

from standardwebhooks import Webhook as Signer

from sso.crypto import encryption
from sso.crypto.encryption import SecretKeys

_PURPOSE = "webhook secret"


def make() -> str:
    """A new secret, as receivers are given it."""
    return f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"


def encrypt(secret_keys: SecretKeys, secret: str) -> str:
    return encryption.encrypt(secret_keys, _PURPOSE, secret.encode())


def decrypt(secret_keys: SecretKeys, sealed: str) -> str:
    """Raises `InvalidToken` when none of the secret keys decrypts it."""
    return encryption.decrypt(secret_keys, _PURPOSE, sealed).decode()


def can_decrypt(secret_keys: SecretKeys, sealed: str) -> bool:
    try:
        decrypt(secret_keys, sealed)
    except encryption.InvalidToken:
        return False
    return True


def reencrypt(secret_keys: SecretKeys, sealed: str) -> str | None:
    """The same, encrypted with the first secret key; `None` if it is already.

    Raises `InvalidToken` when none of the secret keys decrypts it.
    """
    return encryption.reencrypt(secret_keys, _PURPOSE, sealed)


def headers(secret: str, message_id: str, at: datetime, body: str) -> dict[str, str]:
    """The headers by which the receiver verifies the body."""
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Signer(secret).sign(message_id, at, body),
    }
