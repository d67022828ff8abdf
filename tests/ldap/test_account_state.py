"""Whether a directory lets somebody in, by what each product keeps."""

from datetime import UTC, datetime, timedelta

from sso.ldap import account_state
from sso.ldap.account_state import State
from sso.ldap.messages import Entry, Result

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
    assert state(userAccountControl="514") == State.DISABLED
    assert state(accountExpires=str(TICKS - 10_000_000)) == State.EXPIRED
    assert state(accountExpires=str(TICKS)) == State.EXPIRED  # at this very moment
    assert state(accountExpires="1") == State.EXPIRED
    assert state(nsAccountLock="TRUE") == State.DISABLED
    assert state(krbPrincipalExpiration="20261121000000Z") == State.EXPIRED
    assert state(krbPrincipalExpiration="soon") == State.EXPIRED
    assert state(pwdAccountLockedTime="000001010000Z") == State.DISABLED
    assert state(shadowExpire="20000") == State.EXPIRED
    assert state(shadowExpire="0") == State.EXPIRED  # a day as any other; only -1 is never


def test_what_a_bind_means() -> None:
    def told(code: int, diagnostic: str = "", policy: int | None = None) -> tuple[str, bool] | None:
        return account_state.of_bind(Result(code, diagnostic, policy))

    active_directory = "80090308: LdapErr: DSID-0C09044E, comment: AcceptSecurityContext error, "
    assert told(0) is None
    assert told(0, policy=2) == ("password must change", True)
    assert told(49) == ("password", False)
    assert told(49, f"{active_directory}data 52e, v4563") == ("password", False)
    assert told(49, f"{active_directory}data 533, v4563") == ("disabled", True)
    assert told(49, f"{active_directory}data 773, v4563") == ("password must change", True)
    assert told(49, f"{active_directory}data 775, v4563") == ("locked", False)
    assert told(49, policy=0) == ("password must change", True)
    assert told(49, policy=1) == ("locked", False)
    assert told(53, "account inactivated") == ("53 account inactivated", False)
    assert told(14) == ("14 ", False)


def test_who_has_to_change_the_password() -> None:
    def must(**attributes: str) -> bool:
        values = {name.lower(): [value.encode()] for name, value in attributes.items()}
        return account_state.must_change_password(Entry("cn=a", values), NOW)

    assert not must()
    assert not must(pwdLastSet="1", pwdReset="FALSE", krbPasswordExpiration="20270101000000Z")
    assert must(pwdLastSet="0")
    assert must(pwdReset="TRUE")
    assert must(krbPasswordExpiration="20261121000000Z")
