"""Passwords: Argon2id (RFC 9106), as costly for unknown users as for known ones.

Checking or hashing a password may wait for others. The transaction must be over before.
"""

import os
import sys
import threading
import unicodedata
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from sso.crypto import foreign_hashes
from sso.crypto.password_strength import (
    LEAKED,
    MAX_LENGTH,
    MIN_LENGTH,
    TOO_COMMON,
    TOO_LONG,
    TOO_SHORT,
    weakness,
)
from sso.process import concurrency

__all__ = [
    "LEAKED", "MAX_LENGTH", "MIN_LENGTH", "TOO_COMMON", "TOO_LONG", "TOO_SHORT",
    "Busy", "hash_password", "is_foreign", "look_for_room", "needs_rehash", "own_method", "verify",
    "verify_foreign", "weakness",
]  # fmt: skip

# OWASP's parameters: 19 MiB, 2 passes, 1 lane.
hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)

# One hash at a time in a process, and this many that wait without a slot: a flood of sign-ins must
# leave threads, memory and cores to other requests, and a morning's rush must get through.
AT_ONCE = 16
# Additional places for proven owners of an account (a browser that it signed in from before, a
# session, a mailed link), so that no flood of strangers keeps them out. Each account has one place
# at a time: a person with a few accounts cannot take them all.
KEPT = 8
_under_way, _counting = 0, threading.Lock()
_kept: set[str] = set()  # the accounts that have such a place
_LESS_URGENT = 5  # nice(2): against a busy thread, about a quarter of a core

T = TypeVar("T")


class Busy(Exception):
    """Too many passwords are being checked at this moment."""


def hash_password(password: str, account: str | None = None) -> str:
    """Return the Argon2id hash of a password. Raises `Busy`.

    `account`: an account that the person has proven to own; a place is kept for it.
    """
    return _in_turn(lambda: hasher.hash(_normal(password)), account)


def verify(
    password: str,
    stored: str | None,
    account: str | None = None,
    imported: Collection[str] = (),
) -> bool:
    """Return whether the password is the stored one; `None` (an unknown user) costs the same.

    `imported`: the methods of all imported passwords. A wrong password costs as much as a check
    by each of them. `account`: as for `hash_password`. Raises `Busy`.
    """
    return _in_turn(lambda: _is_right(password, stored, imported), account)


def _is_right(password: str, stored: str | None, imported: Collection[str]) -> bool:
    method = foreign_hashes.method_of(stored)
    native = stored if method else None  # never a hash with parameters out of bounds
    if stored and method and (method in imported or not method.startswith("$argon2")):
        if foreign_hashes.verify(password, stored):
            return True
        native = None
    try:
        hasher.verify(native or _nobody(), _normal(password))
    except (VerificationError, InvalidHashError):
        pass
    else:
        if native is not None:
            return True
    foreign_hashes.spend(imported, method)
    return False


def verify_foreign(secret: str, stored: str) -> bool:
    """Return whether a secret is that of another server's hash. Raises `Busy`.

    Takes longer for a client with such a hash than for others: that it exists is no secret.
    """
    return _in_turn(lambda: foreign_hashes.verify(secret, stored), None)


def is_foreign(stored: str | None) -> bool:
    """Return whether another system made the hash; the next sign-in replaces it."""
    return foreign_hashes.method_of(stored) not in (None, own_method())


def look_for_room(find_account: Callable[[], str | None] = lambda: None) -> None:
    """Raise `Busy` if no password can be checked now. Call it before any other work.

    `find_account` is called only if its answer matters.
    """
    if _under_way >= AT_ONCE and not _has_kept_place(find_account()):
        raise Busy


def needs_rehash(stored: str) -> bool:
    """Return whether the stored hash is of another system, or has other parameters than today's."""
    try:
        return hasher.check_needs_rehash(stored)
    except InvalidHashError:
        return True


def own_method() -> str:
    """Return the method of this server's own hashes."""
    return f"$argon2id$v=19$m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"


class _Queue:
    """The tasks in the order of their arrival; those with kept places get every other turn."""

    def __init__(self) -> None:
        self._kept: deque[Callable[[], None]] = deque()
        self._others: deque[Callable[[], None]] = deque()
        self._was_kept = False

    def put(self, task: Callable[[], None], is_kept: bool) -> None:
        (self._kept if is_kept else self._others).append(task)

    def do_next(self) -> None:
        """Run the next task. The only worker thread calls this once for each task."""
        self._was_kept = bool(self._kept) and not (self._was_kept and self._others)
        (self._kept if self._was_kept else self._others).popleft()()


_queue = _Queue()


def _in_turn(work: Callable[[], T], account: str | None) -> T:
    global _under_way
    with _counting:
        is_kept = _has_kept_place(account)
        if is_kept and account is not None:
            _kept.add(account)
        elif _under_way >= AT_ONCE:
            raise Busy
        else:
            _under_way += 1
    try:
        future: Future[T] = Future()
        with concurrency.slot_released():
            _queue.put(lambda: _do(work, future), is_kept)
            _worker().submit(_queue.do_next)
            return future.result()
    finally:
        with _counting:
            if is_kept and account is not None:
                _kept.discard(account)
            else:
                _under_way -= 1


def _has_kept_place(account: str | None) -> bool:
    return account is not None and account not in _kept and len(_kept) < KEPT


def _do(work: Callable[[], T], future: "Future[T]") -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


@cache
def _worker() -> ThreadPoolExecutor:
    # Created at the first use: threads do not survive the fork of gunicorn's workers.
    return ThreadPoolExecutor(1, "passwords", initializer=_step_back)


def _step_back() -> None:
    # On Linux every thread has its own priority; elsewhere the whole process has one. If a system
    # call filter forbids this, hashes run at normal priority.
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LESS_URGENT)


def _normal(password: str) -> bytes:
    # The same password typed on two keyboards may arrive composed or decomposed (RFC 8265 §4.2).
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")


@cache
def _nobody() -> str:
    return hasher.hash("a password that nobody has")
