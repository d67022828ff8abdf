"""Statements about authenticator apps. One of them decides that a time step counts once."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import delete, func, select, update

from sso.extensions import db
from sso.models import TotpSecret
from sso.store.statements import write


class Sealed(NamedTuple):
    """An encrypted secret, and whose it is."""

    user_id: UUID
    sealed_secret: str


def find(user_id: UUID) -> TotpSecret | None:
    return db.session.scalar(select(TotpSecret).where(TotpSecret.user_id == user_id))


def batch(after: UUID | None, limit: int) -> Sequence[Sealed]:
    """The next secrets in the order of their users' ids."""
    statement = select(TotpSecret.user_id, TotpSecret.sealed_secret)
    if after is not None:
        statement = statement.where(TotpSecret.user_id > after)
    rows = db.session.execute(statement.order_by(TotpSecret.user_id).limit(limit))
    return [Sealed(*row) for row in rows]


def count() -> int:
    return db.session.scalar(select(func.count()).select_from(TotpSecret)) or 0


def replace_sealed(user_id: UUID, before: str, after: str) -> bool:
    """Store a secret's other encryption, unless its owner made another secret meanwhile."""
    return (
        write(
            update(TotpSecret)
            .where(TotpSecret.user_id == user_id, TotpSecret.sealed_secret == before)
            .values(sealed_secret=after)
        )
        == 1
    )


def add(secret: TotpSecret) -> None:
    """Raises `IntegrityError` when the user has one."""
    db.session.add(secret)
    db.session.flush()


def use(user_id: UUID, step: int, now: datetime) -> bool:
    """Accept a time step, if none as late was accepted before: one atomic statement.

    RFC 6238 §5.2: the second use of a code must be refused.
    """
    return (
        write(
            update(TotpSecret)
            .where(TotpSecret.user_id == user_id, TotpSecret.last_step < step)
            .values(last_step=step, last_used_at=now)
        )
        == 1
    )


def remove(user_id: UUID) -> bool:
    """Delete it; whether there was one."""
    return write(delete(TotpSecret).where(TotpSecret.user_id == user_id)) == 1
