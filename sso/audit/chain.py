"""The chain of audit events: append events, purge old ones, verify, and replace the secret key.

The column `seal` of each event is an HMAC over the event, its number and the previous HMAC, with a
key that is not in the database. Someone who can only write to the database cannot change, remove or
reorder an event of the chain undetected. A change between the event and its appending, a moment
later, is not detected.

A chain keeps the secret key that it was begun with until it is rekeyed: someone who has the old
secret key and can write to the database could forge a valid chain. Rekeying verifies each event
with the old key and authenticates it with the new one, in batches, oldest first, while the service
runs. Until the last batch is done, the events up to `resealed_number` and the ends of the chain use
the new key, all later events the old one. An event that was tampered with keeps its HMAC, so that
it is still detected.
"""

import hashlib
import hmac
import json
import logging
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, timedelta
from typing import NamedTuple

from sqlalchemy.exc import IntegrityError

from sso import audit, clock, context, database
from sso.audit import rows
from sso.audit.events import Event
from sso.crypto import secrets
from sso.errors import OperatorError
from sso.extensions import db
from sso.models import AuditChain, AuditEvent
from sso.process.program import COMMAND

logger = logging.getLogger("sso.jobs")

AT_ONCE = 500
SAY_EVERY = 60.0  # seconds between two log lines about a broken chain
_say_again_at = float("-inf")
HALF_REKEYED = (
    "the audit chain is being sealed with another secret key; to finish that, run: "
    f"{COMMAND} key reencrypt with the same SSO_SECRET_KEY_PREVIOUS"
)


class ChainBroken(OperatorError):
    """The chain is damaged, or cannot be changed with these secret keys; nothing is added to it."""


class Keys:
    """The HMAC keys of a chain, derived from the secret keys. Raises `ChainBroken`."""

    def __init__(self, chain: AuditChain) -> None:
        chain_keys = keys()
        self._rekeyed_number = chain.resealed_number
        matching = [key for key in chain_keys if is_equal(chain.seal, ends_mac(key, chain))]
        if not matching:
            raise ChainBroken(
                "the ends of the audit chain are forged, or SSO_SECRET_KEY is not the one of this "
                f"chain; run: {COMMAND} audit verify"
            )
        self.ends: bytes = matching[0]
        other_keys = [key for key in chain_keys if key != self.ends]
        self._old: bytes | None = other_keys[0] if other_keys else None

    def of(self, number: int) -> bytes | None:
        """Return the key of an event, or `None` if its secret key is not set."""
        return (
            self.ends
            if self._rekeyed_number is None or number <= self._rekeyed_number
            else self._old
        )

    def of_next(self, chain: AuditChain) -> bytes:
        """Return the key of the next event. Raises `ChainBroken`."""
        key = self.of(chain.head_number + 1)
        if key is None:
            raise ChainBroken(HALF_REKEYED)
        return key


def append_to_chain() -> int:
    """Append the oldest new events to the chain, and commit; return their number.

    Raises `ChainBroken`.
    """
    if not rows.unchained(1):
        db.session.rollback()
        return 0
    chain = _lock()
    if chain is None:
        return 0
    chain_keys = Keys(chain)
    key = chain_keys.of_next(chain)
    number, before = chain.head_number, chain.head_seal
    chained = []
    for event in rows.unchained(AT_ONCE):
        number += 1
        before = event_mac(key, event, number, before)
        chained.append((event.id, number, before))
    if chained:
        try:
            rows.append(chained)
        except IntegrityError:
            db.session.rollback()
            raise ChainBroken(
                f"somebody else than this program numbered events beyond {chain.head_number}"
            ) from None
        chain.head_number, chain.head_seal = number, before
        chain.seal = ends_mac(chain_keys.ends, chain)
    db.session.commit()
    return len(chained)


def append_due() -> int:
    """Append events like `append_to_chain`, for the worker; log a broken chain once a minute."""
    global _say_again_at
    try:
        return append_to_chain()
    except ChainBroken as error:
        db.session.rollback()
        if (now := time.monotonic()) >= _say_again_at:
            _say_again_at = now + SAY_EVERY
            logger.error("audit events are not sealed: %s", error)
        return 0


def purge(keep: timedelta, at_most: int = 5000, over_faults: bool = False) -> int:
    """Delete older events from the beginning of the chain, and commit; return their number.

    The rest stays verifiable from the anchor on. Deletes `at_most` events: call it again until it
    returns 0. Raises `ChainBroken` and keeps events that were tampered with, unless `over_faults`:
    an operator has seen them.
    """
    chain = _lock()
    last = rows.last_before(clock.now() - keep, at_most) if chain else None
    if chain is None or last is None:
        db.session.rollback()
        return 0
    if chain.resealed_number is not None:
        raise ChainBroken(HALF_REKEYED)
    key = Keys(chain).ends
    # A forged date must not cause the evidence to be deleted.
    number, before = chain.anchor_number, chain.anchor_seal
    for event in rows.chained_up_to(last):
        number += 1
        before_it, before = before, event.seal or ""
        is_whole = event.number == number and before == event_mac(key, event, number, before_it)
        number = event.number or number
        if not is_whole and not over_faults:
            raise ChainBroken(f"event {number} was changed or removed; run: {COMMAND} audit verify")
    chain.anchor_number, chain.anchor_seal = number, before
    chain.seal = ends_mac(key, chain)
    count = rows.remove_up_to(chain.anchor_number)
    audit.event(Event.AUDIT_PURGED, events=count, up_to=chain.anchor_number)
    db.session.commit()
    return count


def purge_due() -> int:
    """Purge by `SSO_AUDIT_LIFETIME`, for the worker; a broken chain is logged and kept."""
    try:
        return purge(timedelta(seconds=context.settings().audit_lifetime))
    except ChainBroken as error:
        db.session.rollback()
        logger.error("audit events are not purged: %s", error)
        return 0


def _lock() -> AuditChain | None:
    """Lock the chain and verify its ends; return `None` if another process begins it."""
    chain = rows.lock_chain()
    if chain is None and rows.has_chained():
        chain = rows.lock_chain()  # another process may have begun the chain just now
        if chain is None:
            raise ChainBroken("the row that knows the ends of the audit chain is missing")
    if chain is None:
        empty = AuditChain(anchor_number=0, anchor_seal="", head_number=0, head_seal="")
        return rows.begin_chain(ends_mac(keys()[0], empty))
    Keys(chain)
    return chain


def keys() -> list[bytes]:
    """Return the HMAC keys that the secret keys derive; a new chain uses the first."""
    return secrets.derive_keys(context.settings().secret_keys, "audit chain")


def event_mac(key: bytes, event: AuditEvent, number: int, before: str) -> str:
    """Return the HMAC of an event with this number, after the HMAC `before`."""
    content = [
        number, before, event.id.hex, event.at.astimezone(UTC).isoformat(), event.name,
        event.user_id, event.client_id, event.address, event.browser, event.fields,
    ]  # fmt: skip
    return _hmac(key, content)


def ends_mac(key: bytes, chain: AuditChain) -> str:
    """Return the HMAC of the ends of the chain."""
    ends = [chain.anchor_number, chain.anchor_seal, chain.head_number, chain.head_seal]
    if chain.resealed_number is not None:
        ends += [chain.resealed_number, chain.resealed_old_seal, chain.resealed_new_seal]
    return _hmac(key, ["ends", *ends])


def is_equal(mac: str, other_mac: str) -> bool:
    """Compare two HMACs in constant time."""
    return hmac.compare_digest(mac.encode(), other_mac.encode())


def _hmac(key: bytes, content: Sequence[object]) -> str:
    return hmac.new(key, json.dumps(content).encode(), hashlib.sha256).hexdigest()


MOST_FAULTS = 100


class Verdict(NamedTuple):
    """The result of `verify`: the number of events, the ends of the chain, and the faults."""

    events: int
    first: int
    head_number: int
    head_seal: str
    faults: list[str]


def verify(noted_head: tuple[int, str] | None = None) -> Verdict:
    """Verify the whole chain. `noted_head`: a head that was stored elsewhere; it has to exist."""
    faults: list[str] = []
    with database.snapshot(db.engine) as connection:
        chain = rows.chain_of(connection)
        if chain is None:
            count = sum(1 for _ in rows.chained(connection))
            if count or noted_head:
                faults.append("the row that knows the ends of the chain is missing")
            return Verdict(count, 0, 0, "", faults)
        walk = _Walk(chain, noted_head)
        faults += walk.begin()
        for event in rows.chained(connection):
            for fault in walk.step(event):
                if len(faults) < MOST_FAULTS:
                    faults.append(fault)
        faults += walk.end()
    return Verdict(walk.count, chain.anchor_number + 1, chain.head_number, chain.head_seal, faults)


class PartVerdict(NamedTuple):
    """The result of `verify_part`: the verified numbers, where to go on, and the faults.

    `next`: the number of the first event that is still to be verified; `None` at the end.
    """

    first: int
    last: int
    next: int | None
    faults: list[str]


def verify_part(first: int, most: int) -> PartVerdict:
    """Verify at most so many events from a number on.

    The HMAC before it is taken as it is stored: what precedes it is not verified.
    """
    with database.snapshot(db.engine) as connection:
        chain = rows.chain_of(connection)
        if chain is None:
            return PartVerdict(first, first - 1, None, [])
        first = max(min(first, chain.head_number), chain.anchor_number + 1)
        walk = _Walk(chain, None)
        faults = list(walk.begin())
        if first > chain.anchor_number + 1:
            walk.number = first - 2
            events = rows.chained_from(connection, first - 1, most + 1)
            if events and events[0].number == first - 1:
                before = events.pop(0)
                walk.number, walk.before = first - 1, before.seal or ""
        else:
            events = rows.chained_from(connection, first, most)
        for event in events[:most]:
            faults += walk.step(event)
        has_more = walk.number < chain.head_number and bool(events)
        if not has_more:
            faults += walk.end()
    last = max(walk.number, first - 1)
    return PartVerdict(first, last, last + 1 if has_more else None, faults[:MOST_FAULTS])


class _Walk:
    """A walk along the chain, event by event; each step yields the faults."""

    def __init__(self, chain: AuditChain, noted_head: tuple[int, str] | None) -> None:
        self.chain, self.noted_head = chain, noted_head
        self.keys: Keys | None = None
        self.number, self.before = chain.anchor_number, chain.anchor_seal
        self.count = 0
        # It is no fault if the noted head was purged since.
        self.has_noted_head = (
            noted_head is None or noted_head[0] < chain.anchor_number or noted_head == (0, "")
        )
        self.has_noted_head = self.has_noted_head or noted_head == (self.number, self.before)

    def begin(self) -> Iterator[str]:
        try:
            self.keys = Keys(self.chain)
        except ChainBroken:
            yield "the ends of the chain are forged, or SSO_SECRET_KEY is not the one of this chain"
            return
        if self.keys.of(self.chain.head_number + 1) is None:
            yield HALF_REKEYED

    def step(self, event: AuditEvent) -> Iterator[str]:
        number, mac = event.number or 0, event.seal or ""
        self.count += 1
        self._cross_over()
        key = self.keys.of(number) if self.keys else keys()[0]
        if number > self.number + 1:
            yield _missing(self.number + 1, number - 1)
        elif number <= max(self.number, self.chain.anchor_number):
            yield f"event {number} lies before the beginning of the chain"
        # After a gap the previous HMAC is unknown: the next event cannot be verified.
        elif key is not None and not is_equal(mac, event_mac(key, event, number, self.before)):
            yield f"event {number} ({event.name}, {event.at:%Y-%m-%d %H:%M}) was changed or moved"
        if number > self.chain.head_number:
            yield f"event {number} lies behind the end of the chain"
        self.has_noted_head = self.has_noted_head or self.noted_head == (number, mac)
        self.number, self.before = number, mac

    def _cross_over(self) -> None:
        """Continue with the old secret key after the last event that was rekeyed."""
        if self.number == self.chain.resealed_number:
            self.before = self.chain.resealed_old_seal or ""

    def end(self) -> Iterator[str]:
        self._cross_over()
        if self.number < self.chain.head_number:
            yield _missing(self.number + 1, self.chain.head_number)
        elif (self.number, self.before) != (self.chain.head_number, self.chain.head_seal):
            yield "the last event is not the one that was sealed last"
        if not self.has_noted_head:
            yield (
                "the head that you noted is not in this chain: it was cut off or made again (after "
                f"a change of the secret key see: {COMMAND} audit list --event audit_resealed)"
            )


def _missing(first: int, last: int) -> str:
    if first == last:
        return f"event {first} was removed"
    return f"events {first} to {last} were removed"


REKEYING_BATCH = 500


class RekeyingStep(NamedTuple):
    """The events that a batch rekeyed, those that remain, and whether the batch was the last."""

    rekeyed: int
    remaining: int
    is_last: bool


def is_rekeying_due() -> bool:
    """Return whether an HMAC of the chain was not made with the first secret key.

    Raises `ChainBroken`.
    """
    chain = rows.chain_of(db.session.connection())
    if chain is None:
        return False
    return chain.resealed_number is not None or Keys(chain).ends != keys()[0]


def rekey(over_faults: bool = False) -> RekeyingStep:
    """Rekey the next batch, and commit. Raises `ChainBroken` and leaves the chain unchanged.

    `over_faults`: continue after events that were tampered with; an operator has seen them. If the
    ends are forged, or their secret key is lost, continue after the last event.
    """
    chain = rows.lock_chain()
    newest = keys()[0]
    if chain is None:
        db.session.rollback()
        return RekeyingStep(0, 0, True)
    try:
        chain_keys = Keys(chain)
    except ChainBroken:
        if not over_faults:
            raise
        return _begin_after(chain, newest)
    if chain.resealed_number is None:
        if chain_keys.ends == newest:
            db.session.rollback()
            return RekeyingStep(0, 0, True)
        old, new = chain_keys.ends, newest
        chain.resealed_number = chain.anchor_number
        chain.resealed_old_seal = chain.resealed_new_seal = chain.anchor_seal
    else:  # begun before: finish that first, whichever of the two keys is the newest
        old, new = chain_keys.of_next(chain), chain_keys.ends
    batch = _rekey_batch(chain, old, new, over_faults)
    remaining = chain.head_number - (chain.resealed_number or 0)
    if is_whole := len(batch) < REKEYING_BATCH:
        _finish(chain, over_faults)
    chain.seal = ends_mac(new, chain)
    db.session.commit()
    return RekeyingStep(len(batch), 0 if is_whole else remaining, is_whole and new == newest)


def _begin_after(chain: AuditChain, key: bytes) -> RekeyingStep:
    """Begin a new chain after the existing events, which stay unverifiable."""
    last = max(chain.head_number, rows.last_number())
    chain.anchor_number = chain.head_number = last
    chain.anchor_seal = chain.head_seal
    chain.resealed_number = chain.resealed_old_seal = chain.resealed_new_seal = None
    chain.seal = ends_mac(key, chain)
    audit.event(Event.AUDIT_RESEALED, fault=f"nothing up to event {last} can be verified")
    db.session.commit()
    return RekeyingStep(0, 0, True)


def _rekey_batch(chain: AuditChain, old: bytes, new: bytes, over_faults: bool) -> list[object]:
    number = chain.resealed_number or 0
    before, new_before = chain.resealed_old_seal or "", chain.resealed_new_seal or ""
    batch = []
    for event in rows.chained_between(number, chain.head_number, REKEYING_BATCH):
        mac, expected = event.seal or "", number + 1
        number = event.number or 0
        is_whole = number == expected and is_equal(mac, event_mac(old, event, number, before))
        if not is_whole and not over_faults:
            raise ChainBroken(f"event {number} was changed or removed; run: {COMMAND} audit verify")
        new_before = event_mac(new, event, number, new_before) if is_whole else mac
        before = mac
        batch.append((event.id, number, new_before))
    if batch:
        rows.append(batch)
    chain.resealed_number = number
    chain.resealed_old_seal, chain.resealed_new_seal = before, new_before
    return list(batch)


def _finish(chain: AuditChain, over_faults: bool) -> None:
    """Complete the rekeying after its last batch."""
    reached = (chain.resealed_number, chain.resealed_old_seal)
    if reached == (chain.head_number, chain.head_seal):
        old_head = f"{chain.head_number}:{chain.head_seal}"
        chain.head_seal = chain.resealed_new_seal or ""
        audit.event(Event.AUDIT_RESEALED, old_head=old_head)
    elif not over_faults:
        raise ChainBroken(f"the last events were removed; run: {COMMAND} audit verify")
    else:  # the end stays as it is, and is still reported as missing
        audit.event(Event.AUDIT_RESEALED, fault="the last events were removed")
    chain.resealed_number = chain.resealed_old_seal = chain.resealed_new_seal = None
