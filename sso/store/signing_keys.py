"""Statements about signing keys."""

from collections.abc import Sequence

from sqlalchemy import select

from sso.extensions import db
from sso.models import KeyState, SigningKey


def every() -> Sequence[SigningKey]:
    """All keys, oldest first."""
    return db.session.scalars(
        select(SigningKey).order_by(SigningKey.created_at, SigningKey.alg, SigningKey.kid)
    ).all()


def find(kid: str) -> SigningKey | None:
    return db.session.scalar(select(SigningKey).where(SigningKey.kid == kid))


def in_state(alg: str, state: KeyState) -> SigningKey | None:
    """The one next or active key of an algorithm, locked for a change."""
    return db.session.scalar(
        select(SigningKey).where(SigningKey.alg == alg, SigningKey.state == state).with_for_update()
    )


def add(key: SigningKey) -> None:
    db.session.add(key)
    db.session.flush()
