"""Rekeys the audit chain: from the secret key that it was begun with to the one that replaces it.

Someone who has the old secret key and can write to the database could make a chain that looks
whole. So each event is verified with the old key and gets a seal of the new one, in batches, oldest
first, while the service runs; new events get old seals until the last batch has caught up. An event
that was tampered with keeps the seal it has, so that it is still found.
"""

from typing import NamedTuple

from sso import audit
from sso.audit import rows
from sso.audit.chain import ChainBroken, Keys, is_equal, keys, seal_of, seal_of_ends
from sso.audit.events import Event
from sso.extensions import db
from sso.models import AuditChain
from sso.process.program import COMMAND

BATCH = 500


class Step(NamedTuple):
    """How many events a batch sealed, how many are left, and whether it was the last one."""

    sealed: int
    left: int
    is_last: bool


def is_due() -> bool:
    """Whether the chain, if there is one, has a seal that is not of the first secret key.

    Raises `ChainBroken`.
    """
    chain = rows.chain_of(db.session.connection())
    if chain is None:
        return False
    return chain.resealed_number is not None or Keys(chain).ends != keys()[0]


def step(over_faults: bool = False) -> Step:
    """Rekey the next batch; commits. Raises `ChainBroken`, and leaves the chain as it was.

    `over_faults`: go on behind events that were tampered with; a person has seen them. Where the
    ends are forged, or their secret key is lost, that is behind the last event.
    """
    chain = rows.lock_chain()
    newest = keys()[0]
    if chain is None:
        db.session.rollback()
        return Step(0, 0, True)
    try:
        known = Keys(chain)
    except ChainBroken:
        if not over_faults:
            raise
        return _begin_behind(chain, newest)
    if chain.resealed_number is None:
        if known.ends == newest:
            db.session.rollback()
            return Step(0, 0, True)
        old, new = known.ends, newest
        chain.resealed_number = chain.anchor_number
        chain.resealed_old_seal = chain.resealed_new_seal = chain.anchor_seal
    else:  # begun before: finish that first, whichever of the two keys is the newest
        old, new = known.of_next(chain), known.ends
    sealed = _seal_batch(chain, old, new, over_faults)
    left = chain.head_number - (chain.resealed_number or 0)
    if is_whole := len(sealed) < BATCH:
        _finish(chain, over_faults)
    chain.seal = seal_of_ends(new, chain)
    db.session.commit()
    return Step(len(sealed), 0 if is_whole else left, is_whole and new == newest)


def _begin_behind(chain: AuditChain, key: bytes) -> Step:
    """The ends cannot be verified: begin again after what is there, which stays unverifiable."""
    last = max(chain.head_number, rows.last_number())
    chain.anchor_number = chain.head_number = last
    chain.anchor_seal = chain.head_seal
    chain.resealed_number = chain.resealed_old_seal = chain.resealed_new_seal = None
    chain.seal = seal_of_ends(key, chain)
    audit.event(Event.AUDIT_RESEALED, fault=f"nothing up to event {last} can be verified")
    db.session.commit()
    return Step(0, 0, True)


def _seal_batch(chain: AuditChain, old: bytes, new: bytes, over_faults: bool) -> list[object]:
    number = chain.resealed_number or 0
    before, new_before = chain.resealed_old_seal or "", chain.resealed_new_seal or ""
    sealed = []
    for event in rows.chained_between(number, chain.head_number, BATCH):
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
