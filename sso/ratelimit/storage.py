"""Count attempts in Redis for all processes and nodes, or in the memory of this process.

While Redis does not answer, this process counts by itself, so that users can sign in. A short
timeout, and a pause before Redis is asked again, keep requests from hanging.
"""

import logging
import threading
import time
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from sso import clock
from sso.config import connections

if TYPE_CHECKING:
    from limits.storage import RedisStorage


logger = logging.getLogger("sso.limits")

MOST_COUNTERS = 50_000
_FEW = 1000  # up to this number of counters, expired ones may stay


class MemoryStorage:
    """Counters that expire."""

    def __init__(self) -> None:
        self.counters: dict[str, tuple[int, float]] = {}  # the count, and when it expires
        self._lock = threading.Lock()
        self._look_at = _FEW  # counters

    def incr(self, key: str, seconds: int, amount: int = 1) -> int:
        with self._lock:
            now = monotonic()
            count, end = self.counters.get(key, (0, 0.0))
            if end <= now:
                count, end = 0, now + seconds
            self.counters[key] = count + amount, end
            if len(self.counters) > min(self._look_at, MOST_COUNTERS):
                self._make_room(now)
            return count + amount

    def get(self, key: str) -> int:
        count, end = self.counters.get(key, (0, 0.0))
        return count if end > monotonic() else 0

    def get_expiry(self, key: str) -> float:
        _, end = self.counters.get(key, (0, 0.0))
        return clock.now().timestamp() + max(0.0, end - monotonic())

    def clear(self, key: str) -> None:
        with self._lock:
            self.counters.pop(key, None)

    def _make_room(self, now: float) -> None:
        """Remove expired counters, and the smaller half if too many remain.

        So a flood of names does not take all memory. The count of an attacker is large, and stays.
        """
        for key in [key for key, (_, end) in self.counters.items() if end <= now]:
            del self.counters[key]
        if len(self.counters) > MOST_COUNTERS:
            logger.error(
                "more than %d rate limits in memory: the smaller half is forgotten", MOST_COUNTERS
            )
            for key in sorted(self.counters, key=lambda key: self.counters[key][0])[
                : MOST_COUNTERS // 2
            ]:
                del self.counters[key]
        self._look_at = max(_FEW, 2 * len(self.counters))


TIMEOUT = 0.25  # seconds
AWAY = 5.0  # seconds for which Redis is not asked after an error
LOG_EVERY = 60.0  # seconds between two lines in the log about an outage
_PREFIX = "sso"
T = TypeVar("T")


class LimitStorage:
    """Counters that expire. It never raises if Redis does not answer."""

    def __init__(self, url: str | None) -> None:
        self._local = MemoryStorage()
        self._redis = connect(url) if url else None
        self._errors = errors_of(self._redis)
        self._away_until = self._log_again_at = float("-inf")
        self._state = threading.Lock()

    def increase(self, key: str, seconds: int, by: int = 1) -> int:
        """Add to a counter, and return it. It expires `seconds` after its first increase."""
        return self._do(lambda storage: storage.incr(key, seconds, by))

    def read(self, key: str) -> int:
        return self._do(lambda storage: storage.get(key))

    def ends_at(self, key: str) -> float:
        """Return when a counter expires, in seconds since 1970."""
        return self._do(lambda storage: storage.get_expiry(key))

    def forget(self, key: str) -> None:
        self._do(lambda storage: storage.clear(key))
        self._local.clear(key)

    def _do(self, work: "Callable[[RedisStorage | MemoryStorage], T]") -> T:
        if self._redis is not None and time.monotonic() >= self._away_until:
            try:
                return work(self._redis)
            except self._errors as error:
                self._is_away(error)
                # The next connections may lead to another server, which takes writes.
                pool: Any = self._redis.storage.connection_pool
                pool.disconnect(inuse_connections=False)
        return work(self._local)

    def _is_away(self, error: Exception) -> None:
        now = time.monotonic()
        with self._state:
            self._away_until = now + AWAY
            is_news = now >= self._log_again_at
            if is_news:
                self._log_again_at = now + LOG_EVERY
        if is_news:
            logger.error(
                "redis does not answer (%s): each process limits rates by itself meanwhile",
                type(error).__name__,
            )


def connect(url: str, timeout: float = TIMEOUT) -> "RedisStorage":
    """Return the storage in Redis, without connecting. It renews a stale connection once."""
    # Imported here, because a server without Redis does not need these 8 MB.
    from limits.storage import RedisSentinelStorage, RedisStorage
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    limits: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    limits["retry"] = Retry(NoBackoff(), 1)
    once: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}
    sentinels = connections.sentinels(url)
    if sentinels is None:
        return RedisStorage(url, key_prefix=_PREFIX, **limits)
    return RedisSentinelStorage(
        sentinels.uri,
        key_prefix=_PREFIX,
        use_replicas=False,  # they may lag behind
        sentinel_kwargs={**sentinels.sentinel_options, **limits, **once},
        **sentinels.options,
        **limits,
    )


def errors_of(redis: "RedisStorage | None") -> tuple[type[Exception], ...]:
    """Return the exceptions that are raised while Redis does not answer."""
    if redis is None:
        return (OSError,)
    errors = redis.base_exceptions
    return (*(errors if isinstance(errors, tuple) else (errors,)), OSError)
