"""Deletes what has expired, in batches short enough that nothing has to wait for them."""

import time
from collections.abc import Callable, Iterator, Sequence

from sso.extensions import db
from sso.store import expired

BATCH = 200  # rows looked at in one transaction
# Between two batches others have the database to themselves for twice as long as the batch took:
# SQLite has one writer at a time. Seconds.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.5


def batches(
    size: int = BATCH, expiries: Sequence[expired.Expiry] = expired.EXPIRIES
) -> Iterator[tuple[str, int]]:
    """Purge the whole database, or these tables; yields each batch's table and deleted rows, after
    the commit.

    Pauses when asked for the next batch. May be left at any point; a purge that begins again finds
    the rest.
    """
    for expiry in expiries:
        last = None
        while True:
            began = time.monotonic()
            last, deleted = expired.delete_batch(expiry, last, size)
            db.session.commit()
            took = time.monotonic() - began
            yield expiry.name, deleted
            if deleted:
                time.sleep(min(max(2 * took, SHORTEST_PAUSE), LONGEST_PAUSE))
            if last is None:
                break


def purge(size: int = BATCH, report: Callable[[int], None] | None = None) -> dict[str, int]:
    """Purge the whole database; returns how many rows of each table."""
    counts = dict.fromkeys((expiry.name for expiry in expired.EXPIRIES), 0)
    for name, deleted in batches(size):
        counts[name] += deleted
        if report:
            report(deleted)
    return counts


class Piecewise:
    """For a worker with other things to do: each call deletes a batch, returns how many rows.

    0 means that there is nothing left to do for now.
    """

    def __init__(self, expiries: Sequence[expired.Expiry] = expired.EXPIRIES) -> None:
        self._expiries = expiries
        self._batches: Iterator[tuple[str, int]] | None = None

    def __call__(self) -> int:
        # A batch that raises ends its purge: the next call begins a new one.
        purge, self._batches = self._batches or batches(expiries=self._expiries), None
        for _, deleted in purge:
            if deleted:
                self._batches = purge
                return deleted
        return 0
