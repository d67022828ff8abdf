"""Events that a signed-in user can repeat in a loop.

Each user has a budget of audit rows per kind of event, hour and process. That it is used up is
recorded once. The log line is written anyway.
"""

from collections import Counter
from threading import Lock
from uuid import UUID

from flask import current_app

from sso import audit, clock
from sso.audit.events import Event, limited

AN_HOUR = 300  # rows of a kind for one user; applications that ask every minute need fewer
MOST = 50_000  # counters in memory
_EXTENSION = "sso.own_events"


class _Counts:
    """Counts of this hour. In this process alone, as authorize is hit too often to ask Redis."""

    def __init__(self) -> None:
        self._hour, self._counts, self._lock = 0, Counter[tuple[str, UUID]](), Lock()

    def increase(self, name: str, user: UUID) -> int:
        hour = int(clock.now().timestamp()) // 3600
        with self._lock:
            if hour != self._hour or len(self._counts) >= MOST:
                self._hour, self._counts = hour, Counter()
            self._counts[name, user] += 1
            return self._counts[name, user]


def _counts() -> _Counts:
    extensions = current_app.extensions
    if _EXTENSION not in extensions:
        extensions.setdefault(_EXTENSION, _Counts())  # another thread may be quicker
    counts: _Counts = extensions[_EXTENSION]
    return counts


def record(name: Event, user: UUID, **fields: object) -> None:
    """As `audit.event`, of this person."""
    count = _counts().increase(name, user)
    write = audit.event if count <= AN_HOUR else audit.on_log_alone
    write(name, user=user, **fields)
    if count == AN_HOUR + 1:
        audit.event(limited(name), user=user, count="of user")
