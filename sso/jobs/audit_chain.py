"""The chain of audit events: seal what is new, verify it, cut its old end off.

Each event's seal is an HMAC over the event, its number and the seal before, with a key that is not
in the database. So whoever can write to the database alone changes, removes or reorders no sealed
event unseen; what they do within the moment before an event is sealed stays unseen.
"""

import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy.exc import IntegrityError

from sso import audit, clock, context
from sso.audit import rows as audit_events
from sso.audit.events import Event
from sso.extensions import db
from sso.jobs import audit_seals
from sso.jobs.audit_seals import HALF_RESEALED, Keys, is_equal, seal_of, seal_of_ends
from sso.jobs.audit_seals import ChainBroken as ChainBroken
from sso.models import AuditChain, AuditEvent
from sso.store import database_copy

logger = logging.getLogger("sso.jobs")

AT_ONCE = 500
SAY_EVERY = 60.0  # seconds between two lines on the log about a broken chain
_say_again_at = float("-inf")
MOST_FAULTS = 100


class Verdict(NamedTuple):
    """What `verify` found: how much there is, where it ends, and every fault."""

    events: int
    first: int
    head_number: int
    head_seal: str
    faults: list[str]


def seal() -> int:
    """Put the oldest new events into the chain; commits. Tells how many.

    Raises `ChainBroken`.
    """
    if not audit_events.unsealed(1):
        db.session.rollback()
        return 0
    chain = _lock()
    if chain is None:
        return 0
    keys = Keys(chain)
    key = keys.of_next(chain)
    number, before = chain.head_number, chain.head_seal
    sealed = []
    for event in audit_events.unsealed(AT_ONCE):
        number += 1
        before = seal_of(key, event, number, before)
        sealed.append((event.id, number, before))
    if sealed:
        try:
            audit_events.seal(sealed)
        except IntegrityError:
            db.session.rollback()
            raise ChainBroken(
                f"somebody else than this program numbered events beyond {chain.head_number}"
            ) from None
        chain.head_number, chain.head_seal = number, before
        chain.seal = seal_of_ends(keys.ends, chain)
    db.session.commit()
    return len(sealed)


def seal_due() -> int:
    """As `seal`, for the worker: a broken chain is told once a minute, and waits for a person."""
    global _say_again_at
    try:
        return seal()
    except ChainBroken as fault:
        db.session.rollback()
        if (now := time.monotonic()) >= _say_again_at:
            _say_again_at = now + SAY_EVERY
            logger.error("audit events are not sealed: %s", fault)
        return 0


def purge(keep: timedelta, at_most: int = 5000, over_faults: bool = False) -> int:
    """Delete from the beginning of the chain what is older; commits. Tells how many events.

    What stays is verifiable from the anchor on. At most so many: call it again until none is left.
    Raises `ChainBroken`, and leaves what was tampered with where it is; unless `over_faults`, when
    a person has seen it.
    """
    chain = _lock()
    last = audit_events.last_before(clock.now() - keep, at_most) if chain else None
    if chain is None or last is None:
        db.session.rollback()
        return 0
    if chain.resealed_number is not None:
        raise ChainBroken(HALF_RESEALED)
    key = Keys(chain).ends
    # A date that somebody changed must not make us remove the traces of it ourselves.
    number, before = chain.anchor_number, chain.anchor_seal
    for event in audit_events.sealed_up_to(last):
        number += 1
        before_it, before = before, event.seal or ""
        is_whole = event.number == number and before == seal_of(key, event, number, before_it)
        number = event.number or number
        if not is_whole and not over_faults:
            raise ChainBroken(f"event {number} was changed or removed; run: flask audit verify")
    chain.anchor_number, chain.anchor_seal = number, before
    chain.seal = seal_of_ends(key, chain)
    count = audit_events.remove_up_to(chain.anchor_number)
    audit.event(Event.AUDIT_PURGED, events=count, up_to=chain.anchor_number)
    db.session.commit()
    return count


def purge_due() -> int:
    """As `purge`, for the worker, by `SSO_AUDIT_LIFETIME`; leaves a broken chain as it is."""
    try:
        return purge(timedelta(seconds=context.settings().audit_lifetime))
    except ChainBroken as fault:
        db.session.rollback()
        logger.error("audit events are not purged: %s", fault)
        return 0


def verify(seen: tuple[int, str] | None = None) -> Verdict:
    """Look at every sealed event. `seen`: a head that was noted elsewhere, which must be there."""
    faults: list[str] = []
    with database_copy.snapshot(db.engine) as connection:
        chain = audit_events.chain_of(connection)
        if chain is None:
            rows = sum(1 for _ in audit_events.sealed_of(connection))
            if rows or seen:
                faults.append("the row that knows the ends of the chain is missing")
            return Verdict(rows, 0, 0, "", faults)
        walk = _Walk(chain, seen)
        faults += walk.begin()
        for event in audit_events.sealed_of(connection):
            for fault in walk.step(event):
                if len(faults) < MOST_FAULTS:
                    faults.append(fault)
        faults += walk.end()
    return Verdict(walk.count, chain.anchor_number + 1, chain.head_number, chain.head_seal, faults)


class _Walk:
    """Along the chain, event by event; each step tells its faults."""

    def __init__(self, chain: AuditChain, seen: tuple[int, str] | None) -> None:
        self.chain, self.seen = chain, seen
        self.keys: Keys | None = None
        self.number, self.before = chain.anchor_number, chain.anchor_seal
        self.count = 0
        # What was purged since somebody looked is no fault.
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
        key = self.keys.of(number) if self.keys else audit_seals.keys()[0]
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
                "a change of the secret key see: flask audit list --event audit_resealed)"
            )


def _lock() -> AuditChain | None:
    """The chain, with ends that are ours. Raises `ChainBroken`."""
    chain = audit_events.lock_chain()
    if chain is None and audit_events.has_sealed():
        chain = audit_events.lock_chain()  # another process may have begun the chain just now
        if chain is None:
            raise ChainBroken("the row that knows the ends of the audit chain is missing")
    if chain is None:
        empty = AuditChain(anchor_number=0, anchor_seal="", head_number=0, head_seal="")
        return audit_events.begin_chain(seal_of_ends(audit_seals.keys()[0], empty))
    Keys(chain)
    return chain


def _missing(first: int, last: int) -> str:
    if first == last:
        return f"event {first} was removed"
    return f"events {first} to {last} were removed"
