"""Statements about a user's second factors, of whatever kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, exists, select

from sso.models import Passkey, RecoveryCode, TotpSecret
from sso.store import passkeys, prepared, recovery_codes, totp_secrets
from sso.store.statements import write


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
        passkeys.of_user(user_id), totp_secrets.find(user_id), recovery_codes.unused(user_id)
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
