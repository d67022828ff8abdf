"""Whether a directory lets a person in, by the attributes of their entry.

A server refuses most of these at the bind by itself, but not all of them, and nobody binds when a
person is looked for again later.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from sso.ldap.messages import INVALID_CREDENTIALS, SUCCESS, Entry, Result


class State(StrEnum):
    """Why a directory lets nobody in; the values are recorded in the audit trail."""

    DISABLED = "disabled"
    EXPIRED = "expired"
    LOCKED = "locked"
    MUST_CHANGE = "password must change"
    REMOVED = "removed"
    WRONG_PASSWORD = "password"  # noqa: S105 (no secret)


# What Active Directory writes into the diagnostic of a refused bind. It checks the password before
# all of these but `locked`.
_OF_ACTIVE_DIRECTORY = {
    "532": State.MUST_CHANGE,
    "533": State.DISABLED,
    "701": State.EXPIRED,
    "773": State.MUST_CHANGE,
    "775": State.LOCKED,
}
# Codes of the password policy control.
_OF_PASSWORD_POLICY: dict[int | None, State] = {
    0: State.MUST_CHANGE,
    1: State.LOCKED,
    2: State.MUST_CHANGE,
}

_ACCOUNT_DISABLED = 0x2  # of userAccountControl
_NEVER = (0, 0x7FFFFFFFFFFFFFFF)  # of accountExpires
_WINDOWS_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOR_GOOD = "000001010000Z"  # of pwdAccountLockedTime


class Refusal(NamedTuple):
    """Why a person may not sign in, and whether the password was right."""

    reason: str  # a `State`, or what the directory says
    is_password_right: bool = False


def of_bind(result: Result) -> Refusal | None:
    """Return the refusal that the answer to a bind means; `None` lets the person in."""
    policy = _OF_PASSWORD_POLICY.get(result.policy)
    if result.code == SUCCESS:
        return Refusal(policy, is_password_right=True) if policy else None
    _, _, data = result.diagnostic.partition(", data ")
    if state := _OF_ACTIVE_DIRECTORY.get(data[:3]):
        # A locked account says so to anyone, whatever the password is.
        return Refusal(state, is_password_right=state != State.LOCKED)
    if policy:
        return Refusal(policy, is_password_right=policy == State.MUST_CHANGE)
    if result.code == INVALID_CREDENTIALS:
        return Refusal(State.WRONG_PASSWORD)
    return Refusal(f"{result.code} {result.diagnostic}")


def of(entry: Entry, now: datetime) -> State | None:
    """Return why the person is kept out for good, or `None`.

    A lock that ends by itself is not meant: anyone can cause that by guessing.
    """
    return next((state for check in _CHECKS if (state := check(entry, now))), None)


def must_change_password(entry: Entry, now: datetime) -> bool:
    """Return whether the person has to choose another password first."""
    ends = entry.text("krbPasswordExpiration")  # FreeIPA may let people bind after it
    is_over = bool(ends) and _generalized_time(ends, now) <= now
    by_policy = entry.text("pwdReset").upper() == "TRUE"
    return is_over or by_policy or entry.text("pwdLastSet") == "0"


def _active_directory(entry: Entry, now: datetime) -> State | None:
    if (_number(entry, "userAccountControl") or 0) & _ACCOUNT_DISABLED:
        return State.DISABLED
    ticks = _number(entry, "accountExpires")
    if ticks is not None and ticks not in _NEVER:
        return _past(_WINDOWS_EPOCH, timedelta(microseconds=ticks // 10), now)
    return None


def _red_hat(entry: Entry, now: datetime) -> State | None:
    """Return the state of an account in 389 Directory Server or FreeIPA."""
    if entry.text("nsAccountLock").lower() == "true":
        return State.DISABLED
    ends = entry.text("krbPrincipalExpiration")
    return State.EXPIRED if ends and _generalized_time(ends, now) <= now else None


def _openldap(entry: Entry, now: datetime) -> State | None:
    return State.DISABLED if entry.text("pwdAccountLockedTime") == _FOR_GOOD else None


def _posix(entry: Entry, now: datetime) -> State | None:
    days = _number(entry, "shadowExpire")
    if days is None or days < 0:
        return None
    return _past(_UNIX_EPOCH, timedelta(days=min(days, 2_000_000)), now)


_CHECKS: tuple[Callable[[Entry, datetime], State | None], ...] = (
    _active_directory,
    _red_hat,
    _openldap,
    _posix,
)
ATTRIBUTES = (
    *("userAccountControl", "accountExpires", "pwdLastSet"),
    *("nsAccountLock", "krbPrincipalExpiration", "krbPasswordExpiration"),
    *("pwdAccountLockedTime", "pwdReset", "shadowExpire"),
)


def _past(epoch: datetime, after: timedelta, now: datetime) -> State | None:
    try:
        return State.EXPIRED if epoch + after <= now else None
    except OverflowError:  # further away than a calendar goes
        return None


def _number(entry: Entry, attribute: str) -> int | None:
    try:
        return int(entry.text(attribute)[:30])
    except ValueError:
        return None


def _generalized_time(text: str, otherwise: datetime) -> datetime:
    """Parse a time such as `20261231235959Z`; an invalid one keeps the person out."""
    try:
        return datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return otherwise
