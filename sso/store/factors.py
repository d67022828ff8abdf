"""Statements about second factors: passkeys, authenticator apps and recovery codes.

Single use is decided here: of an answer of a passkey, of a time step, of a recovery code.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, exists, func, or_, select, update

from sso.extensions import db
from sso.models import Passkey, RecoveryCode, TotpSecret, User
from sso.store import prepared
from sso.store.lists import write


def passkeys_of_user(user_id: UUID) -> Sequence[Passkey]:
    """A user's passkeys, oldest first."""
    return db.session.scalars(
        select(Passkey).where(Passkey.user_id == user_id).order_by(Passkey.created_at, Passkey.id)
    ).all()


def passkeys_exist() -> bool:
    """Whether anyone has one."""
    return db.session.connection().scalar(select(Passkey.__table__.c.id).limit(1)) is not None


def find_passkey_with_user(credential_id: str) -> tuple[Passkey, User] | None:
    """A passkey and whose it is, if they may sign in."""
    row = db.session.execute(
        select(Passkey, User)
        .join(User, User.id == Passkey.user_id)
        .where(Passkey.credential_id == credential_id, User.disabled_at.is_(None))
    ).first()
    return (row[0], row[1]) if row else None


def add_passkey(passkey: Passkey) -> None:
    """Raises `IntegrityError` when the credential is registered already."""
    db.session.add(passkey)
    db.session.flush()


def use_passkey(passkey: Passkey, challenged_at: datetime, sign_count: int, now: datetime) -> bool:
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


def remove_passkey(user_id: UUID, passkey_id: UUID) -> str | None:
    """Delete one of the user's own; its name, or `None` if there is none."""
    return db.session.scalar(
        delete(Passkey)
        .where(Passkey.id == passkey_id, Passkey.user_id == user_id)
        .returning(Passkey.name)
        .execution_options(synchronize_session=False)
    )


class EncryptedTotpSecret(NamedTuple):
    """An encrypted secret, and whose it is."""

    user_id: UUID
    sealed_secret: str


def find_totp_secret(user_id: UUID) -> TotpSecret | None:
    return db.session.scalar(select(TotpSecret).where(TotpSecret.user_id == user_id))


def totp_secret_batch(after: UUID | None, limit: int) -> Sequence[EncryptedTotpSecret]:
    """The next secrets in the order of their users' ids."""
    statement = select(TotpSecret.user_id, TotpSecret.sealed_secret)
    if after is not None:
        statement = statement.where(TotpSecret.user_id > after)
    rows = db.session.execute(statement.order_by(TotpSecret.user_id).limit(limit))
    return [EncryptedTotpSecret(*row) for row in rows]


def count_totp_secrets() -> int:
    return db.session.scalar(select(func.count()).select_from(TotpSecret)) or 0


def replace_totp_secret(user_id: UUID, before: str, after: str) -> bool:
    """Store a secret's other encryption, unless its owner made another secret meanwhile."""
    return (
        write(
            update(TotpSecret)
            .where(TotpSecret.user_id == user_id, TotpSecret.sealed_secret == before)
            .values(sealed_secret=after)
        )
        == 1
    )


def add_totp_secret(secret: TotpSecret) -> None:
    """Raises `IntegrityError` when the user has one."""
    db.session.add(secret)
    db.session.flush()


def use_totp_secret(user_id: UUID, step: int, now: datetime) -> bool:
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


def remove_totp_secret(user_id: UUID) -> bool:
    """Delete it; whether there was one."""
    return write(delete(TotpSecret).where(TotpSecret.user_id == user_id)) == 1


def replace_recovery_codes(user_id: UUID, digests: Iterable[str], now: datetime) -> None:
    """Give a user a new sheet; codes of the old one end."""
    remove_recovery_codes(user_id)
    db.session.add_all(
        RecoveryCode(user_id=user_id, digest=digest, created_at=now) for digest in digests
    )
    db.session.flush()


def use_recovery_code(user_id: UUID, digest: str, now: datetime) -> bool:
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


def unused_recovery_codes(user_id: UUID) -> int:
    """How many are left."""
    count = db.session.scalar(
        select(func.count())
        .select_from(RecoveryCode)
        .where(RecoveryCode.user_id == user_id, RecoveryCode.used_at.is_(None))
    )
    return count or 0


def remove_recovery_codes(user_id: UUID) -> None:
    write(delete(RecoveryCode).where(RecoveryCode.user_id == user_id))


@dataclass(frozen=True)
class Factors:
    """What a user has set up. Recovery codes replace a factor but are none themselves."""

    passkeys: Sequence[Passkey]
    totp: TotpSecret | None
    recovery_codes: int

    def __bool__(self) -> bool:
        return bool(self.passkeys) or self.totp is not None

    @property
    def count(self) -> int:
        return len(self.passkeys) + (self.totp is not None)


def of_user(user_id: UUID) -> Factors:
    """Everything that a user has set up."""
    return Factors(
        passkeys_of_user(user_id), find_totp_secret(user_id), unused_recovery_codes(user_id)
    )


_HAS_ANY = select(
    (
        exists().where(Passkey.user_id == bindparam("user"))
        | exists().where(TotpSecret.user_id == bindparam("user"))
    ).label("has_any")
)


def has_any(connection: Connection, user_id: UUID) -> bool:
    """Whether a user has a passkey or an authenticator app."""
    row = prepared.first(connection, _HAS_ANY, {"user": user_id})
    return bool(row and row["has_any"])


def remove_all(user_id: UUID) -> None:
    for table in (Passkey, TotpSecret, RecoveryCode):
        write(delete(table).where(table.user_id == user_id))
