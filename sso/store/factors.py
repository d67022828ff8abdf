"""Statements about second factors: passkeys, authenticator apps and recovery codes.

They decide that a passkey's answer, a time step and a recovery code are each used only once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    union,
    update,
)

from sso.extensions import db
from sso.models import Identity, Passkey, RecoveryCode, TotpSecret, User
from sso.store import lists, prepared, users
from sso.store.lists import write, write_one


def passkeys_of_user(user_id: UUID) -> Sequence[Passkey]:
    """Return a user's passkeys, oldest first."""
    return db.session.scalars(
        select(Passkey).where(Passkey.user_id == user_id).order_by(Passkey.created_at, Passkey.id)
    ).all()


_FEW = 2000


def is_owner() -> ColumnElement[bool]:
    """Return the condition that a user has a second factor: an authenticator app or a passkey.

    A few owners are looked up and then ordered; if they are many, the users are read in their order
    until there are enough.
    """
    columns = (TotpSecret.user_id, Passkey.user_id)
    some = (select(column).limit(_FEW + 1).subquery() for column in columns)
    if all((db.session.scalar(select(func.count()).select_from(few)) or 0) <= _FEW for few in some):
        return User.id.in_(union(*map(select, columns)))
    # PostgreSQL would read the whole tables for EXISTS, once it is one of several conditions.
    first = (select(column).where(column == User.id).limit(1) for column in columns)
    return or_(*(owner.scalar_subquery().is_not(None) for owner in first))


def passkeys_exist() -> bool:
    """Return whether any user has a passkey."""
    return db.session.connection().scalar(select(Passkey.__table__.c.id).limit(1)) is not None


def find_passkey_with_user(credential_id: str) -> tuple[Passkey, User] | None:
    """Return a passkey and its user, unless that user is disabled."""
    row = db.session.execute(
        select(Passkey, User)
        .join(User, User.id == Passkey.user_id)
        .where(Passkey.credential_id == credential_id, users.enabled())
    ).first()
    return (row[0], row[1]) if row else None


def add_passkey(passkey: Passkey) -> None:
    """Store a passkey. Raises `IntegrityError` if the credential is registered already."""
    db.session.add(passkey)
    db.session.flush()


def present(
    user_ids: Collection[UUID], credential_ids: Collection[str]
) -> tuple[set[UUID], set[UUID], set[str]]:
    """Return those of these users who have an authenticator app, those with recovery codes, and
    those of these credentials that are registered.
    """
    apps = lists.rows_with(select(TotpSecret.user_id), TotpSecret.user_id, user_ids)
    codes = lists.rows_with(select(RecoveryCode.user_id), RecoveryCode.user_id, user_ids)
    return {row[0] for row in apps}, {row[0] for row in codes}, registered(credential_ids)


def registered(credential_ids: Iterable[str]) -> set[str]:
    """Return those of these credentials that are registered, by whomever."""
    keys = {*credential_ids}
    rows = lists.rows_with(select(Passkey.credential_id), Passkey.credential_id, keys)
    return {row[0] for row in rows}


class Exported(NamedTuple):
    """The factors of some users, for another server. Authenticator apps are encrypted."""

    sealed_apps: dict[UUID, str]
    passkeys: Counter[UUID]
    with_codes: set[UUID]
    identities: int


def exported(user_ids: Collection[UUID]) -> Exported:
    """Return the encrypted secrets of these users' authenticator apps, and who has what else."""
    apps = select(TotpSecret.user_id, TotpSecret.sealed_secret)
    passkeys, codes, identities = (
        [row[0] for row in lists.rows_with(select(table.user_id), table.user_id, user_ids)]
        for table in (Passkey, RecoveryCode, Identity)
    )
    return Exported(
        {row[0]: row[1] for row in lists.rows_with(apps, TotpSecret.user_id, user_ids)},
        Counter(passkeys), set(codes), len(identities),
    )  # fmt: skip


def add_all(rows: Sequence[Passkey | TotpSecret | RecoveryCode]) -> None:
    """Store factors. Raises `IntegrityError` if one is there already."""
    db.session.add_all(rows)
    db.session.flush()


def use_passkey(passkey: Passkey, challenged_at: datetime, sign_count: int, now: datetime) -> bool:
    """Accept the answer to a challenge; return False if this or a later challenge was answered
    before. Atomic.

    A counter that does not grow belongs to a clone (WebAuthn §6.1.1), unless both are zero.
    """
    is_newer = or_(Passkey.challenged_at.is_(None), Passkey.challenged_at < challenged_at)
    has_counted = Passkey.sign_count < sign_count if sign_count else Passkey.sign_count == 0
    return write_one(
        update(Passkey)
        .where(Passkey.id == passkey.id, is_newer, has_counted)
        .values(challenged_at=challenged_at, sign_count=sign_count, last_used_at=now)
    )


def remove_passkey(user_id: UUID, passkey_id: UUID) -> str | None:
    """Delete a passkey of this user and return its name; `None` if there is no such passkey."""
    return db.session.scalar(
        delete(Passkey)
        .where(Passkey.id == passkey_id, Passkey.user_id == user_id)
        .returning(Passkey.name)
        .execution_options(synchronize_session=False)
    )


class EncryptedTotpSecret(NamedTuple):
    """The encrypted secret of a user."""

    user_id: UUID
    sealed_secret: str


def find_totp_secret(user_id: UUID) -> TotpSecret | None:
    return db.session.scalar(select(TotpSecret).where(TotpSecret.user_id == user_id))


def totp_secret_batch(after: UUID | None, limit: int) -> Sequence[EncryptedTotpSecret]:
    """Return the next encrypted secrets, in the order of their users' ids."""
    statement = select(TotpSecret.user_id, TotpSecret.sealed_secret)
    if after is not None:
        statement = statement.where(TotpSecret.user_id > after)
    rows = db.session.execute(statement.order_by(TotpSecret.user_id).limit(limit))
    return [EncryptedTotpSecret(*row) for row in rows]


def count_totp_secrets() -> int:
    return db.session.scalar(select(func.count()).select_from(TotpSecret)) or 0


def replace_totp_secret(user_id: UUID, before: str, after: str) -> bool:
    """Store the new encryption of a secret; return False if the user has another secret by now."""
    return write_one(
        update(TotpSecret)
        .where(TotpSecret.user_id == user_id, TotpSecret.sealed_secret == before)
        .values(sealed_secret=after)
    )


def add_totp_secret(secret: TotpSecret) -> None:
    """Store a secret. Raises `IntegrityError` if the user has one already."""
    db.session.add(secret)
    db.session.flush()


def use_totp_secret(user_id: UUID, step: int, now: datetime) -> bool:
    """Accept a time step; return False if it or a later one was accepted before. Atomic.

    RFC 6238 §5.2: the second use of a code must be refused.
    """
    return write_one(
        update(TotpSecret)
        .where(TotpSecret.user_id == user_id, TotpSecret.last_step < step)
        .values(last_step=step, last_used_at=now)
    )


def remove_totp_secret(user_id: UUID) -> bool:
    """Delete the secret of a user; return False if there was none."""
    return write_one(delete(TotpSecret).where(TotpSecret.user_id == user_id))


def replace_recovery_codes(user_id: UUID, digests: Iterable[str], now: datetime) -> None:
    """Replace all recovery codes of a user."""
    remove_recovery_codes(user_id)
    db.session.add_all(
        RecoveryCode(user_id=user_id, digest=digest, created_at=now) for digest in digests
    )
    db.session.flush()


def use_recovery_code(user_id: UUID, digest: str, now: datetime) -> bool:
    """Redeem a code; return False if this user has no such unused code. Atomic."""
    return write_one(
        update(RecoveryCode)
        .where(
            RecoveryCode.user_id == user_id,
            RecoveryCode.digest == digest,
            RecoveryCode.used_at.is_(None),
        )
        .values(used_at=now)
    )


def unused_recovery_codes(user_id: UUID) -> int:
    """Return the number of recovery codes that a user has not used yet."""
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
    """The second factors of a user. Recovery codes replace a factor but are not one themselves."""

    passkeys: Sequence[Passkey]
    totp: TotpSecret | None
    recovery_codes: int

    def __bool__(self) -> bool:
        return bool(self.passkeys) or self.totp is not None

    @property
    def count(self) -> int:
        return len(self.passkeys) + (self.totp is not None)


def of_user(user_id: UUID) -> Factors:
    """Return the second factors and the number of unused recovery codes of a user."""
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
    """Return whether a user has a passkey or an authenticator app."""
    row = prepared.first(connection, _HAS_ANY, {"user": user_id})
    return bool(row and row["has_any"])


def remove_all(user_id: UUID) -> None:
    """Delete all second factors and recovery codes of a user."""
    for table in (Passkey, TotpSecret, RecoveryCode):
        write(delete(table).where(table.user_id == user_id))
