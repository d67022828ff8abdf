"""Statements about signing keys."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, select, update

from sso import database
from sso.extensions import db
from sso.models import KeyState, SigningKey
from sso.store import prepared


def every() -> Sequence[SigningKey]:
    """All keys, oldest first."""
    return db.session.scalars(
        select(SigningKey).order_by(SigningKey.created_at, SigningKey.alg, SigningKey.kid)
    ).all()


class StoredKey(NamedTuple):
    """What the key ring reads of a row."""

    kid: str
    alg: str
    state: str
    public_jwk: str
    sealed_private_jwk: str
    retired_at: datetime | None


_STORED = select(*(prepared.table(SigningKey).c[name] for name in StoredKey._fields))


def stored() -> list[StoredKey]:
    """All keys, for the key ring, on a connection of its own."""
    with database.connection() as connection:
        return [StoredKey._make(row) for row in connection.execute(_STORED)]


def replace_sealed(kid: str, before: str, after: str) -> bool:
    """Store a private key's other encryption, unless another process changed it meanwhile."""
    changed = db.session.scalar(
        update(SigningKey)
        .where(SigningKey.kid == kid, SigningKey.sealed_private_jwk == before)
        .values(sealed_private_jwk=after)
        .returning(SigningKey.kid)
        .execution_options(synchronize_session=False)
    )
    return changed is not None


def find(kid: str) -> SigningKey | None:
    return db.session.scalar(select(SigningKey).where(SigningKey.kid == kid))


def move(kid: str, state: KeyState, to: KeyState, moment: datetime) -> SigningKey | None:
    """Change the state of a key that is still in this one; `None` if it no longer is."""
    since = SigningKey.activated_at if to == KeyState.ACTIVE else SigningKey.retired_at
    return db.session.scalar(
        update(SigningKey)
        .where(SigningKey.kid == kid, SigningKey.state == state)
        .values({SigningKey.state: to, since: moment})
        .returning(SigningKey)
        .execution_options(populate_existing=True)
    )


def oldest_activation() -> datetime | None:
    """Since when the active key that has been in use longest is."""
    return db.session.scalar(
        select(SigningKey.activated_at)
        .where(SigningKey.state == KeyState.ACTIVE)
        .order_by(SigningKey.activated_at)
        .limit(1)
    )


def add(key: SigningKey) -> None:
    db.session.add(key)
    db.session.flush()


def remove(key: SigningKey) -> None:
    """Delete a key; the object stays, to be shown."""
    db.session.expunge(key)
    db.session.execute(delete(SigningKey).where(SigningKey.kid == key.kid))
