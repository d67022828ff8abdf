"""User codes of devices (RFC 8628 §6.1): made, read as people type them, and stored as digests.

Eight of twenty consonants have 34 bits. That is enough where guessing is limited, but not for a
plain digest: somebody who reads the database could try all codes. So the digest is keyed.
"""

import secrets
import unicodedata

from sso.crypto.secrets import SecretKeys, derive_keys, derive_secret

ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels, so that no words come up
LENGTH = 8
_PURPOSE = "device user code"
_LONGEST = 64  # characters that are read
_IGNORED = ("Pd", "Zs", "Cf")  # dashes, spaces, invisible marks


def make() -> str:
    """Draw a user code: eight letters."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def read(text: str) -> str | None:
    """Return the code that a person typed; case, spaces and hyphens do not matter.

    Return `None` for a text that cannot be a code.
    """
    plain = unicodedata.normalize("NFKC", text[:_LONGEST])
    letters = [letter for letter in plain if unicodedata.category(letter) not in _IGNORED]
    code = "".join(letters).upper()
    return code if len(code) == LENGTH and set(code) <= set(ALPHABET) else None


def shown(code: str) -> str:
    """Return a code as people read it: XXXX-XXXX."""
    return f"{code[:4]}-{code[4:]}"


def digests(secret_keys: SecretKeys, code: str) -> list[str]:
    """Return the digests of a code, that of the newest secret key first."""
    return [derive_secret("hmac-sha256:", code, key) for key in derive_keys(secret_keys, _PURPOSE)]
