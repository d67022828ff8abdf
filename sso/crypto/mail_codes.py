"""Codes in mails: eight digits, drawn, read as people type them, and stored as keyed digests."""

import secrets
import unicodedata
from datetime import timedelta
from uuid import UUID

from sso.crypto import secrets as crypto_secrets

LIFETIME = timedelta(minutes=10)  # counted from writing the mail
TRIES = 5
DIGITS = 8
_LONGEST = 40  # characters that are read


def draw() -> str:
    """Draw a code."""
    return f"{secrets.randbelow(10**DIGITS):0{DIGITS}}"


def shown(code: str) -> str:
    """Return a code as people read it: XXXX-XXXX."""
    return f"{code[:4]}-{code[4:]}"


def read(text: str) -> str:
    """Return the digits that a person typed; an Arabic keyboard has digits of its own."""
    return "".join(
        str(unicodedata.decimal(character))
        for character in text[:_LONGEST]
        if character.isdecimal()
    )


def digest(secret_key: str, token_id: UUID, bound_to: str, code: str) -> str:
    """Return the digest of a code, which is valid for one token and what that is bound to.

    It is keyed: there are few codes, and a reader of the database could try them all.
    """
    key = crypto_secrets.derive_key(secret_key, "emailed code")
    return crypto_secrets.derive_secret("hmac-sha256:", f"{token_id} {bound_to} {code}", key)


def matches(secret_key: str, token_id: UUID, bound_to: str, typed: str, stored: str) -> bool:
    """Compare what a person typed with the stored digest, in constant time."""
    return crypto_secrets.is_equal(stored, digest(secret_key, token_id, bound_to, read(typed)))
