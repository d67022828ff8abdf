"""Limits: who is counted with whom, when the first refusal comes, and what ends a pause."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from flask import Flask

from sso.audit import rows, writer
from sso.models import User
from sso.ratelimit import device_cookie, limiting, networks
from sso.ratelimit.limiting import TooManyAttempts
from sso.store import users
from tests.attacks.conftest import Watch, watch  # noqa: F401 (a fixture)
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.events import events
from tests.support.factories import PASSWORD, make_user

DANA, ERIN = "dana@example.com", "erin@example.com"
WRONG = "wrong wrong wrong"
EMAIL = f"{ORIGIN}{BASE}/account/email"


@contextmanager
def at(app: Flask, address: str = "203.0.113.1", cookie: str = "") -> Iterator[None]:
    headers = {"Cookie": f"sso_known={cookie}"} if cookie else {}
    with app.test_request_context(environ_base={"REMOTE_ADDR": address}, headers=headers):
        yield


def fail(rule: limiting.Guessing, account: str, times: int = 1) -> int:
    """So many wrong tries; tells how many were let in."""
    let_in = 0
    for _ in range(times):
        try:
            limiting.enter(rule, account).failed()
        except TooManyAttempts:
            continue
        let_in += 1
    return let_in


def person(app: Flask, email: str) -> User:
    with app.app_context():
        found = users.find_by_email(email)
    return found or make_user(app, email)


def known(app: Flask, account: str = DANA) -> str:
    """The cookie of a browser that this account has signed in from."""
    user = person(app, account)
    with app.test_request_context():
        device_cookie.remember(user)
        response = app.response_class()
        device_cookie.save(response)
    return response.headers["Set-Cookie"].split("=", 1)[1].split(";")[0]


RULES = {
    "sign_in": (limiting.SIGN_IN, 5, 30, 200, 20),
    "second_factor": (limiting.SECOND_FACTOR, 5, 10, 200, 10),
    "password_check": (limiting.PASSWORD_CHECK, 5, 10, 200, None),
    "emailed_code": (limiting.EMAILED_CODE, 5, 10, 200, None),
    "passkey": (limiting.PASSKEY, 200, None, 200, None),
    "client": (limiting.CLIENT_AUTHENTICATION, 20, None, 300, None),
}


@pytest.mark.usefixtures("watch")
@pytest.mark.parametrize("name", RULES)
def test_how_many_are_free(app: Flask, name: str) -> None:
    """At each door one more gets through, which begins the pause."""
    rule, pair, account, address, of_known = RULES[name]
    with at(app):
        assert fail(rule, DANA, pair + 3) == pair + 1
        assert fail(rule, ERIN) == 1 or name == "passkey"
    if account:
        let_in = 0
        for number in range(account + 5):
            with at(app, f"198.51.100.{number}"):
                let_in += fail(rule, "someone@example.com")
        assert let_in == account + 1
    let_in = 0
    with at(app, "192.0.2.1"):
        for number in range(address + 5):
            let_in += fail(rule, f"user{number}@example.com")
    assert let_in == address + 1
    if of_known:
        with at(app, "192.0.2.2", known(app)):
            assert fail(rule, DANA, of_known + 3) == of_known + 1


@pytest.mark.usefixtures("watch")
def test_two_known_browsers_have_a_count_each(app: Flask) -> None:
    one, other = known(app), known(app)
    with at(app, cookie=one):
        assert fail(limiting.SIGN_IN, DANA, 30) == 21
    with at(app, cookie=other):
        assert fail(limiting.SIGN_IN, DANA, 5) == 5
    # And each account of one browser has a count of its own, too.
    with at(app, cookie=one):
        device_cookie.remember(person(app, ERIN))
        response = app.response_class()
        device_cookie.save(response)
    both = response.headers["Set-Cookie"].split("=", 1)[1].split(";")[0]
    with at(app, cookie=both):
        assert fail(limiting.SIGN_IN, DANA) == 0
        assert fail(limiting.SIGN_IN, ERIN, 5) == 5


@pytest.mark.usefixtures("watch")
def test_the_right_one_forgives_here_alone(app: Flask) -> None:
    """A sign-in ends the pause of its account from here; the counts of others go on."""
    with at(app):
        fail(limiting.SIGN_IN, DANA, 5)
        limiting.enter(limiting.SIGN_IN, DANA)  # an attempt that is still under way
    with at(app, "192.0.2.9"):
        fail(limiting.SIGN_IN, DANA, 4)
        limiting.enter(limiting.SIGN_IN, DANA).passed()
        assert fail(limiting.SIGN_IN, DANA, 5) == 5
    with at(app):  # not forgiven by the sign-in elsewhere
        assert fail(limiting.SIGN_IN, DANA, 3) <= 1


@pytest.mark.usefixtures("watch")
def test_signing_in_as_oneself_forgives_no_guesses_at_others(app: Flask) -> None:
    """Between two guesses the attacker signs in to an account of their own."""
    let_in = 0
    with at(app):
        for number in range(230):
            let_in += fail(limiting.SIGN_IN, f"user{number}@example.com")
            if number < 199:
                limiting.enter(limiting.SIGN_IN, "mallory@example.com").passed()
    assert let_in == 201
    account = 0
    for number in range(40):
        with at(app, f"198.51.100.{number}"):
            account += fail(limiting.SIGN_IN, DANA)
            limiting.ask(limiting.SIGN_IN, "mallory@example.com")[0].passed()
    assert account == 31


def test_a_pause_ends(app: Flask, watch: Watch) -> None:  # noqa: F811
    with at(app):
        assert fail(limiting.SIGN_IN, DANA, 8) == 6
        with pytest.raises(TooManyAttempts) as caught:
            limiting.enter(limiting.SIGN_IN, DANA)
        assert 0 < caught.value.seconds <= 4
        watch.now += caught.value.seconds
        assert fail(limiting.SIGN_IN, DANA, 3) == 1
        watch.now += 900
        limiting.enter(limiting.SIGN_IN, DANA).passed()
        assert fail(limiting.SIGN_IN, DANA, 5) == 5


@pytest.mark.parametrize("name", RULES)
def test_who_guesses_is_known_for_a_day(app: Flask, name: str, watch: Watch) -> None:  # noqa: F811
    """An office begins anew after an hour, and so does a client: its secret is not guessed."""
    rule, pair, _, address, _ = RULES[name]
    with at(app):
        assert fail(rule, DANA, pair + 1) == pair + 1
    with at(app, "192.0.2.1"):
        let_in = sum(fail(rule, f"user{number}@example.com") for number in range(address + 1))
        assert let_in == address + 1
    watch.now += 3601
    with at(app):
        assert fail(rule, DANA, 3) == (3 if name in ("passkey", "client") else 1)
    with at(app, "192.0.2.1"):
        assert sum(fail(rule, f"late{number}@example.com") for number in range(3)) == 3
    watch.now += 24 * 3600
    with at(app):
        assert fail(rule, DANA, 3) == 3


@pytest.mark.parametrize("rule", [limiting.PASSWORD_RESET, limiting.VERIFICATION, limiting.SIGN_UP])
def test_budgets(app: Flask, rule: limiting.Flooding, watch: Watch) -> None:  # noqa: F811
    def spent(address: str) -> bool:
        with at(app, address):
            try:
                limiting.spend(rule, DANA)
            except TooManyAttempts as fault:
                assert 0 < fault.seconds <= 3600
                return False
        return True

    # One network, whichever of its addresses.
    assert [spent(f"2001:db8:1:2::{number:x}") for number in range(103)] == [True] * 100 + [
        False
    ] * 3
    assert spent("2001:db8:1:3::1")
    watch.now += 3601
    assert spent("2001:db8:1:2::1")
    writer.flush(app)
    with app.app_context():
        told = rows.newest(names=[f"{rule.name}_limited"], limit=9)
    assert len(told) == 1  # once, so that a flood does not fill the trail


@pytest.mark.usefixtures("watch")
def test_a_pause_is_told_once(app: Flask) -> None:
    with at(app):
        fail(limiting.SIGN_IN, DANA, 20)
    writer.flush(app)
    with app.app_context():
        assert len(rows.newest(names=["sign_in_limited"], limit=9)) == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("203.0.113.1", "203.0.113.2", False),
        ("::ffff:203.0.113.1", "203.0.113.1", True),
        ("::ffff:203.0.113.1", "::ffff:203.0.113.2", False),
    ],
)
def test_networks(one: str, other: str, same: bool) -> None:
    assert (networks.of(one) == networks.of(other)) is same


def try_email(browser: Browser, password: str, email: str = "new@example.com") -> int:
    browser.open(EMAIL)
    return browser.submit(email=email, password=password).status


def test_guessing_at_the_change_of_address(app: Flask, user: User) -> None:
    browser = Browser(app)
    browser.sign_in()
    answers = [try_email(browser, WRONG) for _ in range(9)]
    assert answers == [200] * 6 + [429] * 3
    assert try_email(browser, PASSWORD) == 429


def test_both_pages_share_one_count(app: Flask, user: User) -> None:
    """Half of the guesses here, half of them at the change of the password."""
    browser = Browser(app)
    browser.sign_in()
    change = {"action": "change_password", "old_password": WRONG, "new_password": "a" * 20}
    answers = []
    for _ in range(4):
        answers.append(try_email(browser, WRONG))
        browser.open(f"{ORIGIN}{BASE}/account")
        answers.append(browser.submit(**change).status)
    assert answers == [200] * 6 + [429] * 2


def test_a_right_password_is_not_counted(app: Flask, user: User) -> None:
    browser = Browser(app)
    browser.sign_in()
    for number in range(7):
        assert try_email(browser, PASSWORD, f"new{number}@example.com") == 200
    assert try_email(browser, WRONG) == 200


def test_mails_for_a_change_of_address_have_a_budget(app: Flask, user: User) -> None:
    browser = Browser(app)
    browser.sign_in()
    fields = browser.open(EMAIL).fields
    answers = []
    for number in range(101):
        form = {**fields, "email": f"new{number}@example.com", "password": PASSWORD}
        form.pop("action", None)
        answers.append(browser.http.post(f"{BASE}/account/email", data=form, base_url=ORIGIN))
    assert {one.status_code for one in answers[:100]} == {303}
    assert answers[100].status_code == 429


@pytest.mark.parametrize("days", [399, 401])
def test_the_cookie_of_a_known_browser_ends(app: Flask, clock: Clock, days: int) -> None:
    value = known(app)
    clock.move(days=days)
    with at(app, cookie=value):
        assert (device_cookie.id_for(DANA) is not None) == (days < 400)


def test_the_cookie_is_not_for_scripts_nor_for_other_sites(
    make_app: Callable[..., Flask], app: Flask
) -> None:
    for one, secure in ((app, False), (make_app(SSO_BASE_URL="https://sso.example/x"), True)):
        user = person(one, DANA)
        with one.test_request_context():
            device_cookie.remember(user)
            response = one.response_class()
            device_cookie.save(response)
        parts = response.headers["Set-Cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Lax"} <= set(parts)
        assert ("Secure" in parts) is secure


@pytest.mark.usefixtures("watch")
@pytest.mark.parametrize(
    ("networks", "most"), [("2001:db8:1:2{:02x}::1", 200), ("2001:db8:2:{:x}00::1", 500)]
)
def test_a_budget_of_a_wider_network(app: Flask, networks: str, most: int) -> None:
    """A customer with a /56 has twice the budget of a /64, and one with a /48 five times."""
    spent = 0
    for number in range(256):
        with at(app, networks.format(number)):
            for _ in range(3):
                with suppress(limiting.TooManyAttempts):
                    limiting.spend(limiting.PASSWORD_RESET, DANA)
                    spent += 1
    assert spent == most


@pytest.mark.usefixtures("watch")
def test_a_directory_gets_few_from_all_networks_together(app: Flask) -> None:
    """It locks the account after a few, and strangers must not bring that about."""
    let_in = 0
    for number in range(10):
        with at(app, f"198.51.100.{number}"):
            let_in += fail(limiting.DIRECTORY, DANA)
    assert let_in == 3


@pytest.mark.usefixtures("watch")
def test_it_is_told_when_the_budget_is_used_up_and_not_before(app: Flask) -> None:
    for number in range(103):
        with at(app), suppress(TooManyAttempts):
            limiting.spend(limiting.PASSWORD_RESET, DANA)
        if number in (99, 100, 102):
            told = len(events(app, "password_reset_limited"))
            assert told == (number > 99)


@pytest.mark.usefixtures("watch")
@pytest.mark.parametrize(
    ("networks", "most"), [("2001:db8:1:2{:02x}::1", 400), ("2001:db8:2:{:x}00::1", 1000)]
)
def test_guesses_from_a_wider_network(app: Flask, networks: str, most: int) -> None:
    """Of many accounts, a few from each of its networks; one more begins the pause."""
    let_in = 0
    for number in range(256):
        with at(app, networks.format(number)):
            let_in += sum(
                fail(limiting.SIGN_IN, f"user{number}of{one}@example.com") for one in range(5)
            )
        if let_in > most:
            break
    assert let_in == most + 1
    with at(app, networks.format(255)):
        assert fail(limiting.SIGN_IN, ERIN) == 0
    with at(app, "2001:db8:3::1"):
        assert fail(limiting.SIGN_IN, ERIN) == 1
