"""Signing keys: create the first ones, rotate and retire them."""

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

SAML_METADATA_MAX_AGE = timedelta(days=1)  # for which service providers may keep our metadata


class RotationRefused(OperatorError):
    """The keys cannot be changed now; `str()` says why, and what to do."""


def ensure(secret_keys: SecretKeys) -> bool:
    """Create missing next and active keys of every algorithm; return whether any was missing.

    Raises `RotationRefused` if these secret keys do not decrypt the existing keys.
    """
    rows = stored_keys.every_signing_key()
    existing = {(key.alg, key.state) for key in rows}
    missing = [
        (alg, state)
        for alg in keys.ALGORITHMS
        for state in (KeyState.ACTIVE, KeyState.NEXT)
        if (alg, state.value) not in existing
    ]
    db.session.rollback()
    if not missing:
        return False
    _require_open(secret_keys, rows)
    moment = clock.now()
    pairs = [(keys.generate(alg, secret_keys), state) for alg, state in missing]
    try:
        for new, state in pairs:
            row = _row(new, state)
            row.created_at = moment
            stored_keys.add_signing_key(row)
    except IntegrityError:
        db.session.rollback()  # another process was quicker
    return True


def ensure_saml(secret_keys: SecretKeys) -> None:
    """Create the keys of SAML if there are none, in this transaction.

    Raises `RotationRefused` if these secret keys do not decrypt the existing keys.
    """
    rows = stored_keys.every_signing_key()
    existing = {key.state for key in rows if key.alg == keys.SAML}
    missing = [state for state in (KeyState.ACTIVE, KeyState.NEXT) if state not in existing]
    if missing:
        _require_open(secret_keys, rows)
    moment = clock.now()
    for state in missing:
        row = _row(keys.generate(keys.SAML, secret_keys), state)
        row.created_at = moment
        stored_keys.add_missing_signing_key(row)


@audit.acting
def rotate(
    actor: Actor,
    secret_keys: SecretKeys,
    force: bool = False,
    discard: bool = False,
    algorithms: Sequence[str] = keys.ALGORITHMS,
) -> list[SigningKey]:
    """Activate the next keys, retire the active ones, and create new next keys.

    `discard`: if these secret keys do not decrypt a next key, a new key becomes active instead;
    that of SAML is then rotated, too, if there is one.

    Raises `RotationRefused` while a client's cached key set may lack the next key, if these secret
    keys do not decrypt the existing keys, and if another process was quicker.
    """
    rows = stored_keys.every_signing_key()
    if discard and any(row.alg == keys.SAML for row in rows):
        algorithms = (*keys.ALGORITHMS, keys.SAML)
    if not discard:
        # With another secret key than the servers', this process would create keys that they
        # cannot decrypt, or activate a key that nobody can.
        _require_open(secret_keys, rows)
    rows = [row for row in rows if row.alg in algorithms]
    if not force and (wait := _seconds_to_wait(rows, _published_for(algorithms))):
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
    fresh = {alg: keys.generate(alg, secret_keys) for alg in algorithms}
    kids = {(row.alg, row.state): row.kid for row in rows}
    closed = {row.kid for row in rows if not keys.can_decrypt(secret_keys, row)}
    activated = []
    for alg in algorithms:
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
    """Replace a next key by a new one, or remove a retired key from the key set.

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
    elif key.state == KeyState.RETIRED:  # tokens that it signed are no longer accepted
        stored_keys.remove_signing_key(key)
        key.state = "gone"
        audit.event(Event.KEY_REMOVED, kid=key.kid, alg=key.alg)
    return key


def require_any_open(secret_keys: SecretKeys) -> None:
    """Raise `RotationRefused` if these secret keys decrypt no active or next key.

    Then they belong to another database, and other failures to decrypt mean nothing.
    """
    signing = [row for row in stored_keys.every_signing_key() if row.state != KeyState.RETIRED]
    if signing and not any(keys.can_decrypt(secret_keys, row) for row in signing):
        db.session.rollback()
        raise RotationRefused(keys.WRONG_SECRET_KEY)


def _require_open(secret_keys: SecretKeys, rows: Sequence[SigningKey]) -> None:
    """Raise `RotationRefused` unless these secret keys decrypt all active and next keys."""
    signing = [row for row in rows if row.state != KeyState.RETIRED]
    if not all(keys.can_decrypt(secret_keys, row) for row in signing):
        db.session.rollback()
        raise RotationRefused(keys.WRONG_SECRET_KEY)


def _move(kid: str, state: KeyState, to: KeyState) -> SigningKey:
    """Change a key's state by one atomic statement. Raises `RotationRefused` if it has another."""
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


def _published_for(algorithms: Sequence[str]) -> timedelta:
    """Return how long others may keep a key set, or the metadata of SAML."""
    return (
        SAML_METADATA_MAX_AGE if keys.SAML in algorithms else timedelta(seconds=keys.JWKS_MAX_AGE)
    )


def _seconds_to_wait(rows: Sequence[SigningKey], max_age: timedelta) -> int:
    """Return the seconds until every cached key set has the next keys; 0 if they have."""
    first = min((row.created_at for row in rows), default=None)
    youngest = max((row.created_at for row in rows if row.state == KeyState.NEXT), default=None)
    if first is None or youngest is None or youngest == first:
        return 0  # no key set was ever published without them
    # A worker publishes a new key set up to RELOAD_AFTER later.
    published_at = youngest + max_age + keys.RELOAD_AFTER
    return max(0, int((published_at - clock.now()).total_seconds()) + 1)


def _row(new: keys.NewKey, state: KeyState) -> SigningKey:
    return SigningKey(
        kid=new.kid,
        alg=new.alg,
        state=state,
        public_jwk=new.public_jwk,
        sealed_private_jwk=new.sealed_private_jwk,
        activated_at=clock.now() if state == KeyState.ACTIVE else None,
    )
