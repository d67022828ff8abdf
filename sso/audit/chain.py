"""The chain of audit events: append what is new, cut the old end off.

Each event's seal is an HMAC over the event, its number and the seal before, with a key that is not
in the database. Someone who can only write to the database cannot change, remove or reorder an
event of the chain unseen; what they change before an event is appended, a moment after it happened,
stays unseen.

A chain keeps the secret key that it was begun with until it is rekeyed (`rekeying`). While that is
under way, the events up to `resealed_number` and the ends have seals of the new secret key, all
later ones of the old.
"""

import hashlib
import hmac
import json
import logging
import time
from collections.abc import Sequence
from datetime import UTC, timedelta

from sqlalchemy.exc import IntegrityError

from sso import audit, clock, context
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
