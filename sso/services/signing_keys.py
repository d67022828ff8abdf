"""The life of signing keys: make the first ones, rotate, retire."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.exc import IntegrityError

from sso import audit, clock
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import keys
from sso.crypto.secrets import SecretKeys
from sso.errors import OperatorError
from sso.extensions import db
from sso.i18n.message import Message
from sso.models import KeyState, SigningKey
from sso.process.program import COMMAND
from sso.store import keys as stored_keys


class RotationRefused(OperatorError):
    """A change of keys that would break something; `str()` says why and what to do."""


def ensure(secret_keys: SecretKeys) -> bool:
    """Make the missing next and active keys of every algorithm. True if any was missing.

    Raises `RotationRefused` when there are keys that these secret keys do not open.
    """
    rows = stored_keys.every_signing_key()
    have = {(key.alg, key.state) for key in rows}
    missing = [
        (alg, state)
        for alg in keys.ALGORITHMS
        for state in (KeyState.ACTIVE, KeyState.NEXT)
        if (alg, state.value) not in have
    ]
    db.session.rollback()
    if not missing:
        return False
    _require_open(secret_keys, rows)
    moment = clock.now()
    made = [(keys.generate(alg, secret_keys), state) for alg, state in missing]
    try:
        for new, state in made:
            row = _row(new, state)
            row.created_at = moment
            stored_keys.add_signing_key(row)
    except IntegrityError:
        db.session.rollback()  # another process was quicker
    return True


@audit.acting
def rotate(
    actor: Actor, secret_keys: SecretKeys, force: bool = False, discard: bool = False
) -> list[SigningKey]:
    """Next becomes active, active becomes retired, a new next is made; for every algorithm.

    `discard`: where these secret keys do not open a next key, a new one becomes active instead.

    Raises `RotationRefused` while a client's cached key set may lack the next key, when these
    secret keys do not open the keys there are, and when another process was quicker.
    """
    rows = stored_keys.every_signing_key()
    if not discard:
        # Else this process, started with another secret key than the servers', would make keys
        # that they cannot open, or take into use what nobody can.
        _require_open(secret_keys, rows)
    if not force and (wait := _seconds_to_wait(rows)):
        raise RotationRefused(
            Message(
                "the next keys are too young: applications that keep the key set may not know them "
                "for another %(wait)d s; try again then",
                wait=wait,
                for_commands="the next keys are too young: a client that caches the key set may "
                f"not know them for another {wait} s; try again then, or use --force if a key is "
                "compromised",
            )
        )
    fresh = {alg: keys.generate(alg, secret_keys) for alg in keys.ALGORITHMS}
    kids = {(row.alg, row.state): row.kid for row in rows}
    closed = {row.kid for row in rows if not keys.can_decrypt(secret_keys, row)}
    activated = []
    for alg in keys.ALGORITHMS:
        if active := kids.get((alg, KeyState.ACTIVE)):
            _move(active, KeyState.ACTIVE, KeyState.RETIRED)
        if not (following := kids.get((alg, KeyState.NEXT))):
            raise RotationRefused(
                Message(
                    "there are no keys yet",
                    for_commands=f"there are no keys yet; run: {COMMAND} db upgrade",
                )
            )
        if following in closed:
            _move(following, KeyState.NEXT, KeyState.RETIRED)
            following = fresh[alg].kid
            stored_keys.add_signing_key(_row(fresh[alg], KeyState.NEXT))
            fresh[alg] = keys.generate(alg, secret_keys)
        activated.append(_move(following, KeyState.NEXT, KeyState.ACTIVE))
        stored_keys.add_signing_key(_row(fresh[alg], KeyState.NEXT))
        audit.event(Event.KEY_ROTATED, kid=following, alg=alg)
    return activated


@audit.acting
def retire(actor: Actor, kid: str, secret_keys: SecretKeys) -> SigningKey:
    """Take a next key out of use and make another, or a retired one off the key set.

    Raises `RotationRefused` for the active key, `LookupError` for an unknown one.
    """
    key = stored_keys.find_signing_key(kid)
    if key is None:
        raise LookupError(kid)
    if key.state == KeyState.ACTIVE:
        raise RotationRefused(
            Message(
                "this is the active key now; rotate the keys instead",
                for_commands=f"this is the active key; run: {COMMAND} key rotate",
            )
        )
    if key.state == KeyState.NEXT:
        _require_open(secret_keys, stored_keys.every_signing_key())
        key = _move(kid, KeyState.NEXT, KeyState.RETIRED)
        stored_keys.add_signing_key(_row(keys.generate(key.alg, secret_keys), KeyState.NEXT))
        audit.event(Event.KEY_RETIRED, kid=key.kid, alg=key.alg)
    elif key.state == KeyState.RETIRED:  # what it signed, perhaps a thief, is believed no longer
        stored_keys.remove_signing_key(key)
        key.state = "gone"
        audit.event(Event.KEY_REMOVED, kid=key.kid, alg=key.alg)
    return key


def require_any_open(secret_keys: SecretKeys) -> None:
    """Raise `RotationRefused` if these secret keys open none of the keys that sign or will.

    Then they belong to another database, and nothing else that they do not open means anything.
    """
    used = [row for row in stored_keys.every_signing_key() if row.state != KeyState.RETIRED]
    if used and not any(keys.can_decrypt(secret_keys, row) for row in used):
        db.session.rollback()
        raise RotationRefused(keys.WRONG_SECRET_KEY)


def _require_open(secret_keys: SecretKeys, rows: Sequence[SigningKey]) -> None:
    """Raise `RotationRefused` unless these secret keys open every key that signs or will."""
    used = [row for row in rows if row.state != KeyState.RETIRED]
    if not all(keys.can_decrypt(secret_keys, row) for row in used):
        db.session.rollback()
        raise RotationRefused(keys.WRONG_SECRET_KEY)


def _move(kid: str, state: KeyState, to: KeyState) -> SigningKey:
    """One atomic statement decides between processes that saw the same keys."""
    key = stored_keys.move_signing_key(kid, state, to, clock.now())
    if key is None:
        db.session.rollback()
        raise RotationRefused(
            Message(
                "somebody else is changing the keys; look at them again",
                for_commands=f"another process is changing the keys; see: {COMMAND} key list",
            )
        )
    return key


def _seconds_to_wait(rows: Sequence[SigningKey]) -> int:
    """Seconds until every cached key set has the next keys; 0 when it is safe now."""
    first = min((row.created_at for row in rows), default=None)
    youngest = max((row.created_at for row in rows if row.state == KeyState.NEXT), default=None)
    if first is None or youngest is None or youngest == first:
        return 0  # no key set was ever published without them
    # A worker publishes a new key set up to RELOAD_AFTER later.
    known = youngest + timedelta(seconds=keys.JWKS_MAX_AGE) + keys.RELOAD_AFTER
    return max(0, int((known - clock.now()).total_seconds()) + 1)


def _row(new: keys.NewKey, state: KeyState) -> SigningKey:
    return SigningKey(
        kid=new.kid,
        alg=new.alg,
        state=state,
        public_jwk=new.public_jwk,
        sealed_private_jwk=new.sealed_private_jwk,
        activated_at=clock.now() if state == KeyState.ACTIVE else None,
    )
