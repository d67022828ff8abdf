"""What counts as one address, and how pauses grow."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from flask import Flask

from sso.extensions import db
from sso.models import User
from sso.ratelimit import device_cookie, networks
from sso.ratelimit import storage as limit_storage
from sso.ratelimit.limiting import Pauses
from sso.ratelimit.storage import MOST_COUNTERS, LimitStorage
from sso.store import users
from tests.conftest import Statements
from tests.support.factories import make_user
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
