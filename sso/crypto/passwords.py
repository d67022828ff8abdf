"""Passwords: Argon2id (RFC 9106), as costly for unknown users as for known ones.

What checks or makes one may wait for others. The transaction must be over before it.
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
    "weakness",
]  # fmt: skip

# OWASP's parameters: 19 MiB, 2 passes, 1 lane.
hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)

# One hash at a time in a process, and so many that wait without keeping a turn: a flood of sign-ins
# must leave threads, memory and cores to everybody else, and a morning's rush gets through.
AT_ONCE = 16
# Places beside them for those who have shown that an account is theirs (a browser that it signed in
# from before, a session, a mailed link), so that no flood of strangers keeps them out. Each account
# has one of these at a time: anyone who has a few accounts cannot take them all.
KEPT = 8
_under_way, _counting = 0, threading.Lock()
_kept: set[str] = set()  # the accounts that have such a place
_LESS_URGENT = 5  # nice(2): against a busy thread, about a quarter of a core

T = TypeVar("T")


class Busy(Exception):
    """Too many passwords are being checked at this moment."""


def hash_password(password: str, account: str | None = None) -> str:
    """The Argon2id hash to store for a password. Raises `Busy`.

    `account`: an account that the person has shown to be theirs; a place is kept for it.
    """
    return _in_turn(lambda: hasher.hash(_normal(password)), account)


def verify(
    password: str,
    stored: str | None,
    account: str | None = None,
    imported: Collection[str] = (),
) -> bool:
    """Whether the password is the stored one; `None` (unknown user) costs the same and is false.

    `imported`: the methods of all imported passwords. A wrong password costs as much as with all
    of them. `account`: as for `hash_password`. Raises `Busy`.
    """
    return _in_turn(lambda: _is_right(password, stored, imported), account)


def _is_right(password: str, stored: str | None, imported: Collection[str]) -> bool:
    method = foreign_hashes.method_of(stored)
    native = stored if method else None  # never one that is out of bounds
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


def is_foreign(stored: str | None) -> bool:
    """Whether the hash was made elsewhere; the next sign-in replaces it."""
    return foreign_hashes.method_of(stored) not in (None, own_method())


def look_for_room(find_account: Callable[[], str | None] = lambda: None) -> None:
    """Raise `Busy` if no password can be checked now, before anything else is done for it.

    `find_account` is called only when its answer counts.
    """
    if _under_way >= AT_ONCE and not _has_kept_place(find_account()):
        raise Busy


def needs_rehash(stored: str) -> bool:
    """Whether the stored hash was made elsewhere, or with other parameters than today's."""
    try:
        return hasher.check_needs_rehash(stored)
    except InvalidHashError:
        return True


def own_method() -> str:
    """The method of the hashes that are made here."""
    return f"$argon2id$v=19$m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"


class _Queue:
    """What is to be done, in the order in which it came; kept places take every other turn."""

    def __init__(self) -> None:
        self._kept: deque[Callable[[], None]] = deque()
        self._others: deque[Callable[[], None]] = deque()
        self._was_kept = False

    def put(self, task: Callable[[], None], is_kept: bool) -> None:
        (self._kept if is_kept else self._others).append(task)

    def do_next(self) -> None:
        """Called once for each task, by the one thread that works."""
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
        done: Future[T] = Future()
        with concurrency.slot_released():
            _queue.put(lambda: _do(work, done), is_kept)
            _worker().submit(_queue.do_next)
            return done.result()
    finally:
        with _counting:
            if is_kept and account is not None:
                _kept.discard(account)
            else:
                _under_way -= 1


def _has_kept_place(account: str | None) -> bool:
    return account is not None and account not in _kept and len(_kept) < KEPT


def _do(work: Callable[[], T], done: "Future[T]") -> None:
    try:
        done.set_result(work())
    except BaseException as error:
        done.set_exception(error)


@cache
def _worker() -> ThreadPoolExecutor:
    # Made at the first use: threads don't live on in gunicorn's forked workers.
    return ThreadPoolExecutor(1, "passwords", initializer=_step_back)


def _step_back() -> None:
    # Linux gives every thread a priority of its own; elsewhere it is the whole process.
    # Where it is not allowed (a system call filter), a hash is as urgent as all else.
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LESS_URGENT)


def _normal(password: str) -> bytes:
    # The same password typed on two keyboards may arrive composed or decomposed (RFC 8265 §4.2).
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")


@cache
def _nobody() -> str:
    return hasher.hash("a password that nobody has")
