"""Statements about passkeys."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, or_, select, update

from sso.extensions import db
from sso.models import Passkey, User
from sso.store.statements import write


def of_user(user_id: UUID) -> Sequence[Passkey]:
    """A user's passkeys, oldest first."""
    return db.session.scalars(
        select(Passkey).where(Passkey.user_id == user_id).order_by(Passkey.created_at, Passkey.id)
    ).all()


def exist() -> bool:
    """Whether anyone has one."""
    return db.session.connection().scalar(select(Passkey.__table__.c.id).limit(1)) is not None


def find_with_user(credential_id: str) -> tuple[Passkey, User] | None:
    """A passkey and whose it is, if they may sign in."""
    row = db.session.execute(
        select(Passkey, User)
        .join(User, User.id == Passkey.user_id)
        .where(Passkey.credential_id == credential_id, User.disabled_at.is_(None))
    ).first()
    return (row[0], row[1]) if row else None


def add(passkey: Passkey) -> None:
    """Raises `IntegrityError` when the credential is registered already."""
    db.session.add(passkey)
    db.session.flush()


def use(passkey: Passkey, challenged_at: datetime, sign_count: int, now: datetime) -> bool:
    """Accept an answer to a challenge made at this moment, once: one atomic statement.

    Counters that do not grow belong to a clone (WebAuthn §6.1.1), unless both are zero.
    """
    newer = or_(Passkey.challenged_at.is_(None), Passkey.challenged_at < challenged_at)
    counted = Passkey.sign_count < sign_count if sign_count else Passkey.sign_count == 0
    return (
        write(
            update(Passkey)
            .where(Passkey.id == passkey.id, newer, counted)
            .values(challenged_at=challenged_at, sign_count=sign_count, last_used_at=now)
        )
        == 1
    )


def remove(user_id: UUID, passkey_id: UUID) -> str | None:
    """Delete one of the user's own; its name, or `None` if there is none."""
    return db.session.scalar(
        delete(Passkey)
        .where(Passkey.id == passkey_id, Passkey.user_id == user_id)
        .returning(Passkey.name)
        .execution_options(synchronize_session=False)
    )
