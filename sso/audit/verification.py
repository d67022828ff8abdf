"""Verifies the chain of audit events: finds what was changed, removed or moved."""

from collections.abc import Iterator
from typing import NamedTuple

from sso import database
from sso.audit import rows
from sso.audit.chain import HALF_RESEALED, ChainBroken, Keys, is_equal, keys, seal_of
from sso.extensions import db
from sso.models import AuditChain, AuditEvent
from sso.process.program import COMMAND

MOST_FAULTS = 100


class Verdict(NamedTuple):
    """What `verify` found: how much there is, where it ends, and every fault."""

    events: int
    first: int
    head_number: int
    head_seal: str
    faults: list[str]


def verify(seen: tuple[int, str] | None = None) -> Verdict:
    """Look at every sealed event. `seen`: a head that was noted elsewhere, which must be there."""
    faults: list[str] = []
    with database.snapshot(db.engine) as connection:
        chain = rows.chain_of(connection)
        if chain is None:
            count = sum(1 for _ in rows.chained(connection))
            if count or seen:
                faults.append("the row that knows the ends of the chain is missing")
            return Verdict(count, 0, 0, "", faults)
        walk = _Walk(chain, seen)
        faults += walk.begin()
        for event in rows.chained(connection):
            for fault in walk.step(event):
                if len(faults) < MOST_FAULTS:
                    faults.append(fault)
        faults += walk.end()
    return Verdict(walk.count, chain.anchor_number + 1, chain.head_number, chain.head_seal, faults)


class _Walk:
    """Goes along the chain, event by event; each step yields what is wrong."""

    def __init__(self, chain: AuditChain, seen: tuple[int, str] | None) -> None:
        self.chain, self.seen = chain, seen
        self.keys: Keys | None = None
        self.number, self.before = chain.anchor_number, chain.anchor_seal
        self.count = 0
        # That the noted head was purged since is not an error.
        self.has_seen = seen is None or seen[0] < chain.anchor_number or seen == (0, "")
        self.has_seen = self.has_seen or seen == (self.number, self.before)

    def begin(self) -> Iterator[str]:
        try:
            self.keys = Keys(self.chain)
        except ChainBroken:
            yield "the ends of the chain are forged, or SSO_SECRET_KEY is not the one of this chain"
            return
        if self.keys.of(self.chain.head_number + 1) is None:
            yield HALF_RESEALED

    def step(self, event: AuditEvent) -> Iterator[str]:
        number, found = event.number or 0, event.seal or ""
        self.count += 1
        self._cross_over()
        key = self.keys.of(number) if self.keys else keys()[0]
        if number > self.number + 1:
            yield _missing(self.number + 1, number - 1)
        elif number <= max(self.number, self.chain.anchor_number):
            yield f"event {number} lies before the beginning of the chain"
        # After a gap the seal before is unknown: the next event can't be judged.
        elif key is not None and not is_equal(found, seal_of(key, event, number, self.before)):
            yield f"event {number} ({event.name}, {event.at:%Y-%m-%d %H:%M}) was changed or moved"
        if number > self.chain.head_number:
            yield f"event {number} lies behind the end of the chain"
        self.has_seen = self.has_seen or self.seen == (number, found)
        self.number, self.before = number, found

    def _cross_over(self) -> None:
        """From events with seals of the new secret key to those that still have old ones."""
        if self.number == self.chain.resealed_number:
            self.before = self.chain.resealed_old_seal or ""

    def end(self) -> Iterator[str]:
        self._cross_over()
        if self.number < self.chain.head_number:
            yield _missing(self.number + 1, self.chain.head_number)
        elif (self.number, self.before) != (self.chain.head_number, self.chain.head_seal):
            yield "the last event is not the one that was sealed last"
        if not self.has_seen:
            yield (
                "the head that you noted is not in this chain: it was cut off or made again (after "
                f"a change of the secret key see: {COMMAND} audit list --event audit_resealed)"
            )


def _missing(first: int, last: int) -> str:
    if first == last:
        return f"event {first} was removed"
    return f"events {first} to {last} were removed"
