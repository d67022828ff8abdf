"""Statements about recovery codes; single use is decided here."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, func, select, update

from sso.extensions import db
from sso.models import RecoveryCode
from sso.store.statements import write


def replace(user_id: UUID, digests: Iterable[str], now: datetime) -> None:
    """Give a user a new sheet; codes of the old one end."""
    remove(user_id)
    db.session.add_all(
        RecoveryCode(user_id=user_id, digest=digest, created_at=now) for digest in digests
    )
    db.session.flush()


def use(user_id: UUID, digest: str, now: datetime) -> bool:
    """Redeem a code, if it is this user's and unused: one atomic statement."""
    return (
        write(
            update(RecoveryCode)
            .where(
                RecoveryCode.user_id == user_id,
                RecoveryCode.digest == digest,
                RecoveryCode.used_at.is_(None),
            )
            .values(used_at=now)
        )
        == 1
    )


def unused(user_id: UUID) -> int:
    """How many are left."""
    count = db.session.scalar(
        select(func.count())
        .select_from(RecoveryCode)
        .where(RecoveryCode.user_id == user_id, RecoveryCode.used_at.is_(None))
    )
    return count or 0


def remove(user_id: UUID) -> None:
    write(delete(RecoveryCode).where(RecoveryCode.user_id == user_id))
