"""What counts as one address, and how pauses grow."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

import pytest
from flask import Flask

from sso.audit import rows, writer
from sso.extensions import db
from sso.models import User
from sso.ratelimit import device_cookie, limiting, networks
from sso.ratelimit import storage as limit_storage
from sso.ratelimit.limiting import Pauses, TooManyAttempts
from sso.ratelimit.storage import MOST_COUNTERS, LimitStorage
from sso.store import users
from tests.attacks.conftest import Watch, watch  # noqa: F401 (a fixture)
from tests.conftest import Clock, Statements
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.events import events
from tests.support.factories import PASSWORD, make_user
from tests.support.processes import free_port


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        (None, "unknown"),
        ("", "unknown"),
        ("x" * 5000, "unknown"),
        ("203.0.113.7:443", "203.0.113.7"),
        # IPv4 carried in IPv6: NAT64, 6to4, Teredo.
        ("64:ff9b::203.0.113.7", "203.0.113.7"),
        ("64:ff9b:1::203.0.113.7", "64:ff9b:1::cb00:7107"),
        ("64:ff9b:2::203.0.113.7", "64:ff9b:2::/64"),
        ("2002:cb00:7107:1::1", "203.0.113.7"),
        ("2001:0:4136:e378:8000:63bf:34ff:8ef8", "203.0.113.7"),
        ("2001:1:4136:e378:8000:63bf:34ff:8ef8", "2001:1:4136:e378::/64"),
    ],
)
def test_one_address(address: str | None, network: str) -> None:
    assert networks.of(address) == network


@pytest.mark.parametrize(
    ("address", "wider"),
    [
        ("2001:db8:1:2ff:3::1", [(56, "2001:db8:1:200::/56"), (48, "2001:db8:1::/48")]),
        ("[2001:db8:1:2ff::1]:443", [(56, "2001:db8:1:200::/56"), (48, "2001:db8:1::/48")]),
        ("64:ff9b:1::203.0.113.7", []),
        ("64:ff9b::203.0.113.7", []),
        ("::ffff:203.0.113.7", []),
        ("203.0.113.7", []),
        ("nonsense", []),
        (None, []),
    ],
)
def test_the_networks_around_it(address: str | None, wider: list[tuple[int, str]]) -> None:
    assert networks.around(address) == wider


def test_pauses_double_up_to_the_longest() -> None:
    pauses = Pauses(free=3, longest=60)
    assert [pauses.after(count) for count in (0, 2, 3, 4, 5, 6, 7, 8, 10_000)] == [
        0, 0, 2, 4, 8, 16, 32, 60, 60,
    ]  # fmt: skip


def test_a_flood_of_names_does_not_take_all_memory() -> None:
    storage = LimitStorage(None)
    for number in range(MOST_COUNTERS + 100):
        storage.increase(f"name {number}", 3600)
    assert len(storage._local.counters) <= MOST_COUNTERS


def test_a_flood_of_names_does_not_forgive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sso.ratelimit.storage.MOST_COUNTERS", 100)
    storage = LimitStorage(None)
    for _ in range(7):
        storage.increase("guesser", 3600)
    for number in range(1000):
        storage.increase(f"name {number}", 3600)
    assert storage.read("guesser") == 7


def test_a_counter_that_has_ended_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(limit_storage, "monotonic", lambda: now[0])
    storage = limit_storage.MemoryStorage()
    storage.incr("a", 60)
    storage.incr("a", 60)
    for at, count in ((1059.9, 2), (1060.0, 0), (1061.0, 0)):
        now[0] = at
        assert storage.get("a") == count
    assert storage.incr("a", 60) == 1
    storage.clear("a")
    assert storage.get("a") == 0


def test_counters_that_have_ended_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("sso.ratelimit.storage.monotonic", lambda: now)
    storage = LimitStorage(None)
    for number in range(5000):
        storage.increase(f"name {number}", 60)
        now += 1
    assert len(storage._local.counters) <= 1001
    assert storage.read("name 4999") == 1
    assert storage.read("name 4000") == 0


def test_redis_that_is_not_there_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    storage = LimitStorage(f"redis://:hunter2@127.0.0.1:{free_port()}/0")
    assert [storage.increase("a", 60) for _ in range(3)] == [1, 2, 3]
    assert storage.read("a") == 3
    assert storage.ends_at("a") > 0
    storage.forget("a")
    assert storage.read("a") == 0
    said = [one.getMessage() for one in caplog.records if one.name == "sso.limits"]
    assert len(said) == 1
    assert "hunter2" not in said[0]


def sent(app: Flask, known: str = "", *users: User) -> str:
    """The cookie of a browser that brings one, after these people have signed in there."""
    with app.test_request_context(headers={"Cookie": f"sso_known={known}"}):
        for user in users:
            device_cookie.remember(user)
        response = app.response_class()
        device_cookie.save(response)
        return response.headers["Set-Cookie"].split("=", 1)[1].split(";")[0]


def browser_id(app: Flask, known: str, account: str) -> str | None:
    with app.test_request_context(headers={"Cookie": f"sso_known={known}"}):
        return device_cookie.id_for(account)


def test_the_cookie_remembers_the_last_ones(app: Flask) -> None:
    value = ""
    for number in range(device_cookie.MOST + 5):
        value = sent(app, value, make_user(app, f"user{number}@example.com", password=None))
    assert len(value) < 1000  # of the 2048 that are read
    found = [n for n in range(20) if browser_id(app, value, f"user{n}@example.com")]
    assert found == list(range(5, 15))


def test_an_account_in_whatever_letters(app: Flask, user: User) -> None:
    value = sent(app, "", user)
    spelled = ("dana@example.com", "DANA@example.com", "dAna@Example.COM", " dana@example.com ")
    assert len({browser_id(app, value, one) for one in spelled}) == 1
    assert browser_id(app, value, user.email)
    for other in ("dana@example.org", "dana2@example.com", "", "\0"):
        assert browser_id(app, value, other) is None
    with app.app_context():  # the key under which an account is counted
        assert len({device_cookie.mark(one) for one in spelled}) == 1


def test_the_database_is_asked_about_accounts_in_the_cookie_alone(
    app: Flask, user: User, statements: Callable[[], AbstractContextManager[Statements]]
) -> None:
    value = sent(app, "", user)
    make_user(app, "erin@example.com")
    for account, count in (("erin@example.com", 0), ("nobody@example.com", 0), (user.email, 1)):
        with statements() as seen:
            browser_id(app, value, account)
        assert len(seen) == count


def test_the_cookie_of_the_version_before(app: Flask, user: User) -> None:
    """It names the account alone, and holds until the browsers are forgotten for the first time."""
    with app.app_context():
        old = device_cookie._serializer().dumps(["an id", [device_cookie.mark(user.email)]])
    value = old if isinstance(old, str) else old.decode()
    assert browser_id(app, value, user.email) == "an id"
    with app.app_context():
        users.forget_devices(user.id)
        db.session.commit()
    assert browser_id(app, value, user.email) is None


def test_an_address_that_is_another_persons_now(app: Flask, user: User) -> None:
    value = sent(app, "", user)
    with app.app_context():
        moved = users.find(user.id)
        assert moved
        moved.email = "dana@example.org"
        db.session.commit()
    assert browser_id(app, value, user.email) is None  # nobody's
    make_user(app, user.email)
    assert browser_id(app, value, user.email) is None


def test_forgotten_versions_do_not_come_back(app: Flask, user: User) -> None:
    value = sent(app, "", user)
    assert browser_id(app, value, user.email)
    for _ in range(3):
        with app.app_context():
            users.forget_devices(user.id)
            db.session.commit()
        assert browser_id(app, value, user.email) is None


def test_what_is_forgotten_is_no_profile(app: Flask, user: User) -> None:
    """`updated_at` is a claim, and what a grant under way is stored against."""
    with app.app_context():
        users.forget_devices(user.id)
        db.session.commit()
        found = users.find(user.id)
        assert found
        assert (found.device_version, found.updated_at) == (1, user.updated_at)


def test_the_cookies_name_and_attributes(make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_BASE_URL="https://login.example.com/api/auth")
    user = make_user(app)
    with app.test_request_context():
        device_cookie.remember(user)
        set_now = app.response_class()
        device_cookie.save(set_now)
        device_cookie.forget(user)
        deleted = app.response_class()
        device_cookie.save(deleted)
    for response in (set_now, deleted):
        cookie = response.headers["Set-Cookie"]
        assert cookie.startswith("__Host-sso_known=")
        for part in ("Secure", "HttpOnly", "Path=/", "SameSite=Lax"):
            assert part in cookie.split("; ")
        assert "Domain" not in cookie
        assert ("Max-Age=0" in cookie) is (response is deleted)


def test_a_port_in_the_forwarded_address_makes_nobody_unknown() -> None:
    assert networks.of("198.51.100.7:51234") == networks.of("198.51.100.7")
    assert networks.of("[2001:db8::1]:51234") == networks.of("2001:db8::1")


# Limits: who is counted with whom, when the first refusal comes, and what ends a pause.

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
@pytest.mark.parametrize("requests", [1, 7, 35])
def test_a_program_that_jumps_over_its_budget_is_told_of_once(app: Flask, requests: int) -> None:
    """A batch counts as many requests as it has parts."""
    rule, told = replace(limiting.API_REQUESTS, most=30), list[tuple[bool, int]]()
    for count in range(requests, rule.most + 3 * requests, requests):
        is_refused = False
        with at(app):
            try:
                limiting.spend_own(rule, "program", requests)
            except TooManyAttempts:
                is_refused = True
        assert is_refused == (count > rule.most)
        if abs(count - rule.most) <= 2 * requests:
            told.append((is_refused, len(events(app, f"{rule.name}_limited"))))
    assert told
    assert all(number == is_refused for is_refused, number in told)


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
