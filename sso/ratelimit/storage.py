"""Where attempts are counted: in Redis for all processes and nodes, else in this process.

While Redis is away the counting goes on in this process, so that people can sign in; a short
time-out, and a pause before Redis is asked again, keep requests from hanging.
"""

import logging
import threading
import time

from limits.storage import MemoryStorage, RedisStorage

logger = logging.getLogger("sso.limits")

TIMEOUT = 0.25  # seconds
AWAY = 5.0  # seconds for which Redis is left alone after a fault
SAY_EVERY = 60.0  # seconds between two lines on the log about one and the same
MOST = 50_000  # counters in this process's memory
_PREFIX = "sso"


class LimitStorage:
    """Counters that expire. Never raises because Redis is away."""

    def __init__(self, redis_url: str | None) -> None:
        self._local = MemoryStorage()
        self._redis = _connect(redis_url) if redis_url else None
        self._faults = _faults(self._redis)
        self._away_until = self._say_again_at = float("-inf")
        self._state = threading.Lock()

    def increase(self, key: str, seconds: int) -> int:
        """Count one more; a counter lives so many seconds from its first."""
        if (redis := self._shared()) is not None:
            try:
                return redis.incr(key, seconds)
            except self._faults as error:
                self._is_away(error)
        self._bound()
        return self._local.incr(key, seconds)

    def read(self, key: str) -> int:
        if (redis := self._shared()) is not None:
            try:
                return redis.get(key)
            except self._faults as error:
                self._is_away(error)
        return self._local.get(key)

    def ends_at(self, key: str) -> float:
        """When a counter ends, in seconds since 1970."""
        if (redis := self._shared()) is not None:
            try:
                return redis.get_expiry(key)
            except self._faults as error:
                self._is_away(error)
        return self._local.get_expiry(key)

    def forget(self, key: str) -> None:
        if (redis := self._shared()) is not None:
            try:
                redis.clear(key)
            except self._faults as error:
                self._is_away(error)
        self._local.clear(key)

    def _shared(self) -> RedisStorage | None:
        return self._redis if time.monotonic() >= self._away_until else None

    def _is_away(self, error: Exception) -> None:
        now = time.monotonic()
        with self._state:
            self._away_until = now + AWAY
            say, self._say_again_at = (
                now >= self._say_again_at,
                max(self._say_again_at, now + SAY_EVERY) if now >= self._say_again_at
                else self._say_again_at,
            )  # fmt: skip
        if say:
            logger.error(
                "redis does not answer (%s): each process limits rates by itself meanwhile",
                type(error).__name__,
            )

    def _bound(self) -> None:
        """A flood of names must not take all memory. The smallest counts go: a guesser's is big."""
        if len(self._local.storage) <= MOST:
            return
        counts = dict(self._local.storage)
        logger.error("more than %d rate limits in memory: the smaller half is forgotten", MOST)
        for key in sorted(counts, key=counts.__getitem__)[: MOST // 2]:
            self._local.clear(key)


def _connect(url: str) -> RedisStorage:
    """Nothing is sent yet. A connection that went stale is made again once."""
    # Here, because a server without Redis has no use for these 6 MB.
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return RedisStorage(
        url,
        key_prefix=_PREFIX,
        socket_timeout=TIMEOUT,
        socket_connect_timeout=TIMEOUT,
        retry=Retry(NoBackoff(), 1),  # type: ignore[arg-type]  # limits passes it on to redis
    )


def _faults(redis: RedisStorage | None) -> tuple[type[Exception], ...]:
    """What is raised while Redis is away."""
    if redis is None:
        return (OSError,)
    errors = redis.base_exceptions
    return (*(errors if isinstance(errors, tuple) else (errors,)), OSError)
