"""The chain of audit events: append, cut the old end off, verify, and replace the secret key.

Each event's seal is an HMAC over the event, its number and the seal before, with a key that is not
in the database. Someone who can only write to the database cannot change, remove or reorder an
event of the chain unseen; what they change before an event is appended, a moment after it happened,
stays unseen.

A chain keeps the secret key that it was begun with until it is rekeyed: someone who has the old
secret key and can write to the database could make a chain that looks whole. So each event is
verified with the old key and gets a seal of the new one, in batches, oldest first, while the
service runs. Meanwhile the events up to `resealed_number` and the ends have seals of the new key,
all later ones of the old, until the last batch has caught up. An event that was tampered with keeps
its seal, so that it is still found.
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
SAY_EVERY = 60.0  # seconds between two lines on the log about a broken chain
_say_again_at = float("-inf")
HALF_RESEALED = (
    "the audit chain is being sealed with another secret key; to finish that, run: "
    f"{COMMAND} key reencrypt with the same SSO_SECRET_KEY_PREVIOUS"
)


class ChainBroken(OperatorError):
    """The ends of the chain are missing or forged; nothing is added to it."""


class Keys:
    """The keys of one chain, among those of the secret keys that are set. Raises `ChainBroken`."""

    def __init__(self, chain: AuditChain) -> None:
        known = keys()
        self._resealed = chain.resealed_number
        found = [key for key in known if is_equal(chain.seal, seal_of_ends(key, chain))]
        if not found:
            raise ChainBroken(
                "the ends of the audit chain are forged, or SSO_SECRET_KEY is not the one of this "
                f"chain; run: {COMMAND} audit verify"
            )
        self.ends: bytes = found[0]
        others = [key for key in known if key != self.ends]
        self._old: bytes | None = others[0] if others else None

    def of(self, number: int) -> bytes | None:
        """The key of an event; `None` if its secret key is not set."""
        return self.ends if self._resealed is None or number <= self._resealed else self._old

    def of_next(self, chain: AuditChain) -> bytes:
        """The key of the event that comes next. Raises `ChainBroken`."""
        key = self.of(chain.head_number + 1)
        if key is None:
            raise ChainBroken(HALF_RESEALED)
        return key


def append_to_chain() -> int:
    """Add the oldest new events to the chain; commits. Returns how many.

    Raises `ChainBroken`.
    """
    if not rows.unchained(1):
        db.session.rollback()
        return 0
    chain = _lock()
    if chain is None:
        return 0
    known = Keys(chain)
    key = known.of_next(chain)
    number, before = chain.head_number, chain.head_seal
    chained = []
    for event in rows.unchained(AT_ONCE):
        number += 1
        before = seal_of(key, event, number, before)
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
        chain.seal = seal_of_ends(known.ends, chain)
    db.session.commit()
    return len(chained)


def append_due() -> int:
    """As `append_to_chain`, for the worker; a broken chain is logged once a minute."""
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
    """Delete from the beginning of the chain what is older; commits. Returns how many events.

    What stays is verifiable from the anchor on. At most so many: call it again until none is left.
    Raises `ChainBroken`, and leaves what was tampered with where it is; unless `over_faults`, when
    a person has seen it.
    """
    chain = _lock()
    last = rows.last_before(clock.now() - keep, at_most) if chain else None
    if chain is None or last is None:
        db.session.rollback()
        return 0
    if chain.resealed_number is not None:
        raise ChainBroken(HALF_RESEALED)
    key = Keys(chain).ends
    # A forged date must not make us delete the traces of the forgery ourselves.
    number, before = chain.anchor_number, chain.anchor_seal
    for event in rows.chained_up_to(last):
        number += 1
        before_it, before = before, event.seal or ""
        is_whole = event.number == number and before == seal_of(key, event, number, before_it)
        number = event.number or number
        if not is_whole and not over_faults:
            raise ChainBroken(f"event {number} was changed or removed; run: {COMMAND} audit verify")
    chain.anchor_number, chain.anchor_seal = number, before
    chain.seal = seal_of_ends(key, chain)
    count = rows.remove_up_to(chain.anchor_number)
    audit.event(Event.AUDIT_PURGED, events=count, up_to=chain.anchor_number)
    db.session.commit()
    return count


def purge_due() -> int:
    """As `purge`, for the worker, by `SSO_AUDIT_LIFETIME`; leaves a broken chain as it is."""
    try:
        return purge(timedelta(seconds=context.settings().audit_lifetime))
    except ChainBroken as error:
        db.session.rollback()
        logger.error("audit events are not purged: %s", error)
        return 0


def _lock() -> AuditChain | None:
    """The chain, locked, its ends verified; `None` if another process begins it."""
    chain = rows.lock_chain()
    if chain is None and rows.has_chained():
        chain = rows.lock_chain()  # another process may have begun the chain just now
        if chain is None:
            raise ChainBroken("the row that knows the ends of the audit chain is missing")
    if chain is None:
        empty = AuditChain(anchor_number=0, anchor_seal="", head_number=0, head_seal="")
        return rows.begin_chain(seal_of_ends(keys()[0], empty))
    Keys(chain)
    return chain


def keys() -> list[bytes]:
    """The keys that the secret keys give for the chain; the first is that of a new one."""
    return secrets.derive_keys(context.settings().secret_keys, "audit chain")


def seal_of(key: bytes, event: AuditEvent, number: int, before: str) -> str:
    """The seal of an event at this place."""
    content = [
        number, before, event.id.hex, event.at.astimezone(UTC).isoformat(), event.name,
        event.user_id, event.client_id, event.address, event.browser, event.fields,
    ]  # fmt: skip
    return _hmac(key, content)


def seal_of_ends(key: bytes, chain: AuditChain) -> str:
    ends = [chain.anchor_number, chain.anchor_seal, chain.head_number, chain.head_seal]
    if chain.resealed_number is not None:
        ends += [chain.resealed_number, chain.resealed_old_seal, chain.resealed_new_seal]
    return _hmac(key, ["ends", *ends])


def is_equal(one: str, other: str) -> bool:
    """Compare two seals in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def _hmac(key: bytes, content: Sequence[object]) -> str:
    return hmac.new(key, json.dumps(content).encode(), hashlib.sha256).hexdigest()


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


REKEYING_BATCH = 500


class RekeyingStep(NamedTuple):
    """How many events a batch sealed, how many are left, and whether it was the last one."""

    sealed: int
    left: int
    is_last: bool


def is_rekeying_due() -> bool:
    """Whether the chain, if there is one, has a seal that is not of the first secret key.

    Raises `ChainBroken`.
    """
    chain = rows.chain_of(db.session.connection())
    if chain is None:
        return False
    return chain.resealed_number is not None or Keys(chain).ends != keys()[0]


def rekey(over_faults: bool = False) -> RekeyingStep:
    """Rekey the next batch; commits. Raises `ChainBroken`, and leaves the chain as it was.

    `over_faults`: go on behind events that were tampered with; a person has seen them. Where the
    ends are forged, or their secret key is lost, that is behind the last event.
    """
    chain = rows.lock_chain()
    newest = keys()[0]
    if chain is None:
        db.session.rollback()
        return RekeyingStep(0, 0, True)
    try:
        known = Keys(chain)
    except ChainBroken:
        if not over_faults:
            raise
        return _begin_behind(chain, newest)
    if chain.resealed_number is None:
        if known.ends == newest:
            db.session.rollback()
            return RekeyingStep(0, 0, True)
        old, new = known.ends, newest
        chain.resealed_number = chain.anchor_number
        chain.resealed_old_seal = chain.resealed_new_seal = chain.anchor_seal
    else:  # begun before: finish that first, whichever of the two keys is the newest
        old, new = known.of_next(chain), known.ends
    sealed = _seal_batch(chain, old, new, over_faults)
    left = chain.head_number - (chain.resealed_number or 0)
    if is_whole := len(sealed) < REKEYING_BATCH:
        _finish(chain, over_faults)
    chain.seal = seal_of_ends(new, chain)
    db.session.commit()
    return RekeyingStep(len(sealed), 0 if is_whole else left, is_whole and new == newest)


def _begin_behind(chain: AuditChain, key: bytes) -> RekeyingStep:
    """The ends cannot be verified: begin again after what is there, which stays unverifiable."""
    last = max(chain.head_number, rows.last_number())
    chain.anchor_number = chain.head_number = last
    chain.anchor_seal = chain.head_seal
    chain.resealed_number = chain.resealed_old_seal = chain.resealed_new_seal = None
    chain.seal = seal_of_ends(key, chain)
    audit.event(Event.AUDIT_RESEALED, fault=f"nothing up to event {last} can be verified")
    db.session.commit()
    return RekeyingStep(0, 0, True)


def _seal_batch(chain: AuditChain, old: bytes, new: bytes, over_faults: bool) -> list[object]:
    number = chain.resealed_number or 0
    before, new_before = chain.resealed_old_seal or "", chain.resealed_new_seal or ""
    sealed = []
    for event in rows.chained_between(number, chain.head_number, REKEYING_BATCH):
        found, expected = event.seal or "", number + 1
        number = event.number or 0
        is_whole = number == expected and is_equal(found, seal_of(old, event, number, before))
        if not is_whole and not over_faults:
            raise ChainBroken(f"event {number} was changed or removed; run: {COMMAND} audit verify")
        new_before = seal_of(new, event, number, new_before) if is_whole else found
        before = found
        sealed.append((event.id, number, new_before))
    if sealed:
        rows.append(sealed)
    chain.resealed_number = number
    chain.resealed_old_seal, chain.resealed_new_seal = before, new_before
    return list(sealed)


def _finish(chain: AuditChain, over_faults: bool) -> None:
    """The batch has caught up with the head."""
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
