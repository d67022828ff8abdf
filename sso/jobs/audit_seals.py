"""The seals of the audit chain: what they cover, and which secret key made them.

A chain stays with the secret key that it was begun with until it is sealed again from its beginning
(`audit_resealing`). While that is under way, the events up to `resealed_number` and the ends have
seals of the new secret key, all later ones of the old.
"""

import hashlib
import hmac
import json
from collections.abc import Sequence
from datetime import UTC

from sso import context
from sso.crypto import encryption
from sso.errors import OperatorError
from sso.models import AuditChain, AuditEvent


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
                "chain; run: flask audit verify"
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


HALF_RESEALED = (
    "the audit chain is being sealed with another secret key; to finish that, run: "
    "flask key reencrypt with the same SSO_SECRET_KEY_PREVIOUS"
)


def keys() -> list[bytes]:
    """The keys that the secret keys give for the chain; the first is that of a new one."""
    return encryption.derive_keys(context.settings().secret_keys, "audit chain")


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
