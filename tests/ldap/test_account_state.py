"""Whether a directory lets somebody in, by what each product keeps."""

from datetime import UTC, datetime, timedelta

from sso.ldap import account_state
from sso.ldap.account_state import DISABLED, EXPIRED
from sso.ldap.messages import Entry

NOW = datetime(2026, 11, 22, tzinfo=UTC)
TICKS = (NOW - datetime(1601, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 10


def state(**attributes: str) -> str | None:
    values = {name.lower(): [value.encode()] for name, value in attributes.items()}
    return account_state.of(Entry("cn=a", values), NOW)


def test_who_is_let_in() -> None:
    assert state() is None
    assert state(userAccountControl="512", accountExpires="0", pwdLastSet="0") is None
    assert state(accountExpires="9223372036854775807", shadowExpire="-1") is None
    assert state(accountExpires=str(TICKS + 10_000_000)) is None
    assert state(accountExpires="9" * 18, shadowExpire="9" * 18) is None
    assert state(krbPrincipalExpiration="20270101000000Z", nsAccountLock="FALSE") is None
    assert state(pwdAccountLockedTime="20261121000000Z") is None  # it ends by itself
    assert state(userAccountControl="?", accountExpires="x") is None


def test_who_is_not() -> None:
    assert state(userAccountControl="514") == DISABLED
    assert state(accountExpires=str(TICKS - 10_000_000)) == EXPIRED
    assert state(accountExpires="1") == EXPIRED
    assert state(nsAccountLock="TRUE") == DISABLED
    assert state(krbPrincipalExpiration="20261121000000Z") == EXPIRED
    assert state(krbPrincipalExpiration="soon") == EXPIRED
    assert state(pwdAccountLockedTime="000001010000Z") == DISABLED
    assert state(shadowExpire="20000") == EXPIRED
