"""Passwords: Argon2id (RFC 9106), as costly for unknown users as for known ones."""

import threading
import unicodedata
from collections.abc import Iterable
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from zxcvbn import zxcvbn

from sso.words import N_

MAX_LENGTH = 256
MIN_LENGTH = 12

TOO_SHORT = N_("The password is shorter than 12 characters.")
TOO_LONG = N_("The password is longer than 256 characters.")
TOO_COMMON = N_("The password is too easy to guess: it is a common one, or nearly so.")

_GUESSES = 1_000_000  # what a throttled attacker may try in years
_ESTIMATED = 64

# OWASP's parameters: 19 MiB, 2 passes, 1 lane.
hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)

# A flood of sign-ins must not take all memory or all cores of a process.
_turn = threading.BoundedSemaphore(2)


def hash_password(password: str) -> str:
    """The Argon2id hash to store for a password."""
    with _turn:
        return hasher.hash(_normal(password))


def verify(password: str, stored: str | None) -> bool:
    """Whether the password is the stored one; `None` (unknown user) costs the same and is false."""
    try:
        with _turn:
            hasher.verify(stored or _nobody(), _normal(password))
    except (VerificationError, InvalidHashError):
        return False
    return stored is not None


def needs_rehash(stored: str) -> bool:
    """Whether the stored hash was made with weaker parameters than today's."""
    return hasher.check_needs_rehash(stored)


def fault(password: str, about: Iterable[str] = ()) -> str | None:
    """What is wrong with a new password, or `None`.

    `about`: words that an attacker would try first, such as the person's name.
    """
    if len(password) < MIN_LENGTH:
        return TOO_SHORT
    if len(password) > MAX_LENGTH:
        return TOO_LONG
    # The estimate knows the commonest breached passwords, and how they are varied; it takes
    # longer with each character, and what is strong in its beginning is strong.
    beginning = unicodedata.normalize("NFC", password)[:_ESTIMATED]
    if zxcvbn(beginning, user_inputs=list(about))["guesses"] < _GUESSES:
        return TOO_COMMON
    return None


def _normal(password: str) -> bytes:
    # The same password typed on two keyboards may arrive composed or decomposed (RFC 8265 §4.2).
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")


@cache
def _nobody() -> str:
    return hasher.hash("a password that nobody has")
