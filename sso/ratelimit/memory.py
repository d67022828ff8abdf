"""Counters in this process's memory, with the methods that `limits` has for those in Redis."""

import logging
import threading
from time import monotonic

from sso import clock

logger = logging.getLogger("sso.limits")

MOST = 50_000
_FEW = 1000  # expired ones among so many may stay


class MemoryStorage:
    """Counters that expire."""

    def __init__(self) -> None:
        self.counters: dict[str, tuple[int, float]] = {}  # how many, and until when
        self._lock = threading.Lock()
        self._look_at = _FEW  # counters

    def incr(self, key: str, seconds: int, amount: int = 1) -> int:
        with self._lock:
            now = monotonic()
            count, end = self.counters.get(key, (0, 0.0))
            if end <= now:
                count, end = 0, now + seconds
            self.counters[key] = count + amount, end
            if len(self.counters) > min(self._look_at, MOST):
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
        """A flood of names must not take all memory. The smallest counts go: a guesser's is big."""
        for key in [key for key, (_, end) in self.counters.items() if end <= now]:
            del self.counters[key]
        if len(self.counters) > MOST:
            logger.error("more than %d rate limits in memory: the smaller half is forgotten", MOST)
            for key in sorted(self.counters, key=lambda key: self.counters[key][0])[: MOST // 2]:
                del self.counters[key]
        self._look_at = max(_FEW, 2 * len(self.counters))
