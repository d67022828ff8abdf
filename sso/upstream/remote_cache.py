"""Documents of other servers, such as key sets: read when needed, and never a danger to others.

A document is read from its URL when it is first needed, when it is old, and when what is wanted is
not in it; that last at a bounded rate. Each URL is read in a thread of its own. A request waits for
it without a slot and without a database connection, and few requests wait at a time, so that a slow
URL holds up nobody who needs another one.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import BoundedSemaphore, Lock, Thread
from typing import Generic, TypeVar

from sso import clock
from sso.process import concurrency
from sso.process.addresses import PRIVATE
from sso.process.http_call import ForbiddenPeer

logger = logging.getLogger("sso.remote")

FRESH = timedelta(minutes=5)
KEPT = timedelta(hours=1)  # while the URL cannot be read
PAUSE = timedelta(seconds=30)  # between two readings of a URL
SECONDS = 5.0  # that a request waits
MAX_WAITING = 32  # requests of this process
MAX_READING = 16  # URLs
MOST_ENTRIES = 2000  # URLs; strangers may name some
T = TypeVar("T")


class RemoteUnavailable(Exception):
    """It cannot be read; `reason` says why in our words, `str()` also with those of others.

    `is_passing`: it may be there in a moment. `is_private`: its address is one that only settings
    may allow.
    """

    def __init__(
        self,
        reason: str,
        detail: str = "",
        *,
        is_passing: bool = False,
        is_private: bool = False,
    ) -> None:
        super().__init__(f"{reason} ({detail[:200]})" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.is_passing = is_passing
        self.is_private = is_private


def is_private(error: Exception) -> bool:
    """Return whether a server was not called because its address is private."""
    if isinstance(error, ForbiddenPeer):
        return error.kind == PRIVATE
    return bool(getattr(error, "is_private", False))


@dataclass
class _Entry(Generic[T]):
    content: T | None = None
    read_at: datetime | None = None
    tried_at: datetime | None = None
    reading: "Future[T] | None" = None
    trouble: RemoteUnavailable | None = None

    def has(self, suits: Callable[[T], bool], younger_than: timedelta) -> bool:
        is_young = self.read_at is not None and clock.now() < self.read_at + younger_than
        return is_young and self.content is not None and suits(self.content)


def _any(_: object) -> bool:
    return True


class RemoteCache(Generic[T]):
    """The documents that this process has read from URLs. `name` describes them in the log.

    `kept`: how long a document serves while its URL cannot be read. `fresh_for`: how long one
    serves before it is read again.
    """

    def __init__(
        self,
        read: Callable[[str], T],
        name: str,
        *,
        kept: timedelta = KEPT,
        fresh_for: Callable[[T], timedelta] = lambda _: FRESH,
    ) -> None:
        self._read = read
        self._kept, self._fresh_for = kept, fresh_for
        self._name = name
        self._lock = Lock()
        self._entries: dict[str, _Entry[T]] = {}
        self._waiting = BoundedSemaphore(MAX_WAITING)
        self._readers = BoundedSemaphore(MAX_READING)

    def get(self, url: str, suits: Callable[[T], bool] = _any) -> T:
        """Return the document at a URL; one that suits, if there is one.

        Raises `RemoteUnavailable`.
        """
        entry, reading = self._entry(url, suits)
        if entry.has(suits, self._kept) and entry.content is not None:
            return entry.content  # and if it is old, another one is on its way
        if reading is not None:
            return self._wait(reading)
        if entry.has(_any, self._kept) and entry.content is not None:
            return entry.content
        if entry.trouble is None:
            raise RemoteUnavailable("it is not there yet", is_passing=True)
        raise copy(entry.trouble)  # each request raises its own

    def has_fresh(self, url: str) -> bool:
        """Return whether a document is there that need not be read again yet."""
        with self._lock:
            entry = self._entries.get(url)
            if entry is None or entry.content is None:
                return False
            return entry.has(_any, self._fresh_for(entry.content))

    def doubt(self, url: str) -> None:
        """Mark a document as doubtful: it is read again soon, and used until then."""
        with self._lock:
            if (entry := self._entries.get(url)) and entry.read_at:
                entry.read_at = min(entry.read_at, clock.now() - FRESH)

    def _entry(self, url: str, suits: Callable[[T], bool]) -> "tuple[_Entry[T], Future[T] | None]":
        with self._lock:
            if url not in self._entries:
                self._make_room()
            entry = self._entries.setdefault(url, _Entry())
            fresh = self._fresh_for(entry.content) if entry.content is not None else FRESH
            if entry.reading is None and not entry.has(suits, fresh) and self._is_due(entry):
                entry.reading = Future()
                Thread(target=self._fetch, args=(url, entry, entry.reading), daemon=True).start()
            return entry, entry.reading

    def _make_room(self) -> None:
        """Forget the URL that was tried longest ago, if there are too many."""
        if len(self._entries) < MOST_ENTRIES:
            return
        idle = [url for url, entry in self._entries.items() if entry.reading is None]
        never = datetime.min.replace(tzinfo=UTC)
        oldest = min(idle, key=lambda url: self._entries[url].tried_at or never, default=None)
        if oldest is not None:
            del self._entries[oldest]

    def _is_due(self, entry: _Entry[T]) -> bool:
        now = clock.now()
        if entry.tried_at is not None and now < entry.tried_at + PAUSE:
            return False
        if not self._readers.acquire(blocking=False):
            return False
        entry.tried_at = now
        return True

    def _fetch(self, url: str, entry: _Entry[T], reading: "Future[T]") -> None:
        try:
            content = self._read(url)
        except Exception as error:
            if not isinstance(error, RemoteUnavailable):
                error = RemoteUnavailable(
                    "it could not be read", repr(error), is_private=is_private(error)
                )
            entry.trouble, entry.reading = error, None
            logger.info("%s at %s: %s", self._name, url, error)
            reading.set_exception(error)
        else:
            entry.content, entry.read_at, entry.trouble = content, clock.now(), None
            entry.reading = None
            reading.set_result(content)
        finally:
            self._readers.release()

    def _wait(self, reading: "Future[T]") -> T:
        if not self._waiting.acquire(blocking=False):
            raise RemoteUnavailable(f"too many requests wait for {self._name}", is_passing=True)
        try:
            with concurrency.slot_released():
                return reading.result(SECONDS)
        except Late:
            raise RemoteUnavailable("it is not there yet", is_passing=True) from None
        finally:
            self._waiting.release()
