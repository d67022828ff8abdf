"""Passwords: Argon2id (RFC 9106), as costly for unknown users as for known ones.

What checks or makes one may wait for others. The transaction must be over before it.
"""

import os
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from zxcvbn_rs_py import zxcvbn

from sso import turns
from sso.words import N_

MAX_LENGTH = 256
MIN_LENGTH = 12

TOO_SHORT = N_("The password is shorter than 12 characters.")
TOO_LONG = N_("The password is longer than 256 characters.")
TOO_COMMON = N_("The password is too easy to guess: it is a common one, or nearly so.")

_GUESSES = 1_000_000  # what a throttled attacker may try in years

# The estimate takes longer with each character, and far longer with each symbol that may stand for
# a letter; no other thread runs meanwhile. With these limits it is 12 ms at the most. Keyboard rows
# are seen in the shorter beginning, too.
_ESTIMATED, _ESTIMATED_OF_SYMBOLS = 32, MIN_LENGTH  # characters
_SYMBOLS, _MANY_SYMBOLS = frozenset("@({[<!|$+%"), 4

# OWASP's parameters: 19 MiB, 2 passes, 1 lane.
hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)

# One hash at a time in a process, and so many that wait without keeping a turn: a flood of sign-ins
# must leave threads, memory and cores to everybody else, and a morning's rush gets through.
AT_ONCE = 16
_under_way, _counting = 0, threading.Lock()
_LESS_URGENT = 5  # nice(2): against a busy thread, about a quarter of a core

T = TypeVar("T")


class Busy(Exception):
    """Too many passwords are being checked at this moment."""


def hash_password(password: str) -> str:
    """The Argon2id hash to store for a password. Raises `Busy`."""
    return _in_turn(lambda: hasher.hash(_normal(password)))


def verify(password: str, stored: str | None) -> bool:
    """Whether the password is the stored one; `None` (unknown user) costs the same and is false.

    Raises `Busy`.
    """
    try:
        _in_turn(lambda: hasher.verify(stored or _nobody(), _normal(password)))
    except (VerificationError, InvalidHashError):
        return False
    return stored is not None


def look_for_room() -> None:
    """Raise `Busy` if no password can be checked now, before anything else is done for it."""
    if _under_way >= AT_ONCE:
        raise Busy


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
    # The estimate knows the commonest breached passwords, and how they are varied. It is made here,
    # not where hashes are: at low priority it would keep all others from running for longer.
    if zxcvbn(_beginning(password), [_beginning(word) for word in about]).guesses < _GUESSES:
        return TOO_COMMON
    return None


def _beginning(text: str) -> str:
    """What is estimated of a text: what is strong in its beginning is strong.

    In small letters: the estimate takes some words in capitals for the commonest of all.
    """
    composed = unicodedata.normalize("NFC", text[:MAX_LENGTH]).lower()
    encodable = composed.encode("utf-8", "replace").decode()[:_ESTIMATED]
    many = len(_SYMBOLS.intersection(encodable)) > _MANY_SYMBOLS
    return encodable[:_ESTIMATED_OF_SYMBOLS] if many else encodable


def _in_turn(work: Callable[[], T]) -> T:
    global _under_way
    with _counting:
        look_for_room()
        _under_way += 1
    try:
        with turns.passed_on():
            return _worker().submit(work).result()
    finally:
        with _counting:
            _under_way -= 1


@cache
def _worker() -> ThreadPoolExecutor:
    # Made at the first use: threads don't live on in gunicorn's forked workers.
    return ThreadPoolExecutor(1, "passwords", initializer=_step_back)


def _step_back() -> None:
    # Linux gives every thread a priority of its own; elsewhere it is the whole process.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LESS_URGENT)


def _normal(password: str) -> bytes:
    # The same password typed on two keyboards may arrive composed or decomposed (RFC 8265 §4.2).
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")


@cache
def _nobody() -> str:
    return hasher.hash("a password that nobody has")
