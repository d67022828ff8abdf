"""Recovery codes: ten to a sheet, each works once."""

import secrets
from uuid import UUID

from sso import clock
from sso.crypto import secrets as crypto_secrets
from sso.store import factors

COUNT = 10
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # nothing that is read as something else
_GROUPS, _LETTERS = 4, 4  # 79 random bits: a fast digest is sound


def renew(user_id: UUID) -> list[str]:
    """A new sheet, shown this once; the old one ends. Does not commit."""
    codes = [_code() for _ in range(COUNT)]
    factors.replace_recovery_codes(
        user_id, [crypto_secrets.digest(_normal(code)) for code in codes], clock.now()
    )
    return codes


def accept(user_id: UUID, code: str) -> bool:
    """Whether it is an unused code of this user; it is used up. Does not commit."""
    return factors.use_recovery_code(user_id, crypto_secrets.digest(_normal(code)), clock.now())


def _code() -> str:
    groups = ("".join(secrets.choice(_ALPHABET) for _ in range(_LETTERS)) for _ in range(_GROUPS))
    return "-".join(groups)


def _normal(code: str) -> str:
    return "".join(c for c in code.lower() if c.isalnum())
