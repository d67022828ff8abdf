"""The sample application's sign-ins, in the memory of its process."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar

from sso.demo.steps import Step

T = TypeVar("T")


@dataclass
class SignIn:
    """A completed sign-in: who it is, the tokens, and the steps that led here."""

    profile: Mapping[str, Any]
    subject: str
    sid: str | None
    token: Mapping[str, Any]
    steps: tuple[Step, ...]
    refreshes: tuple[Step, ...] = ()
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    lock: Lock = field(default_factory=Lock)


class Memory(Generic[T]):
    """The newest values, each until it expires.

    Tokens are too big for a cookie, so the cookie carries a random key and the rest is here. A real
    application uses a database or Redis.
    """

    def __init__(self, size: int, lifetime: float) -> None:
        self._size, self._lifetime = size, lifetime
        self._entries: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> T | None:
        """Return the value of a key, unless it expired."""
        with self._lock:
            end, value = self._entries.get(key, (0, None))
        return value if time.monotonic() < end else None

    def add(self, key: str, value: T) -> None:
        """Keep a value; the oldest make room for it."""
        with self._lock:
            self._entries[key] = (time.monotonic() + self._lifetime, value)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def pop(self, key: str) -> T | None:
        """Return the value of a key, and forget it."""
        with self._lock:
            end, value = self._entries.pop(key, (0, None))
        return value if time.monotonic() < end else None

    def discard(self, condition: Callable[[T], bool]) -> None:
        """Forget every value that meets a condition."""
        with self._lock:
            for key, (_, value) in [*self._entries.items()]:
                if condition(value):
                    del self._entries[key]
