"""What the application keeps between requests: a bounded dictionary in this process."""

import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedMemory(Generic[T]):
    """The newest entries, each until it expires.

    Tokens are too big for a cookie, so the cookie carries a random key and the rest is here. A real
    application uses a database or Redis. The methods are those that Authlib expects of a cache.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> T | None:
        """The value of a key, unless it expired."""
        with self._lock:
            entry = self._entries.get(key)
        return entry[1] if entry and time.monotonic() < entry[0] else None

    def set(self, key: str, value: T, seconds: float) -> None:
        """Keep a value; the oldest entries make room for it."""
        with self._lock:
            self._entries.pop(key, None)
            self._entries[key] = (time.monotonic() + seconds, value)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def discard(self, condition: Callable[[T], bool]) -> None:
        """Forget every value that meets a condition."""
        with self._lock:
            found = [key for key, (_, value) in self._entries.items() if condition(value)]
            for key in found:
                del self._entries[key]

    def delete(self, key: str) -> None:
        """Forget a value."""
        with self._lock:
            self._entries.pop(key, None)
