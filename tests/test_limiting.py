"""What counts as one address, and how pauses grow."""

from collections.abc import Callable

import pytest
from flask import Flask

from sso import known_browser, networks
from sso.limit_storage import MOST, LimitStorage
from sso.limiting import Pauses
from tests.services import free_port


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
    for number in range(MOST + 100):
        storage.increase(f"name {number}", 3600)
    assert len(storage._local.storage) <= MOST


def test_a_flood_of_names_does_not_forgive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sso.limit_storage.MOST", 100)
    storage = LimitStorage(None)
    for _ in range(7):
        storage.increase("guesser", 3600)
    for number in range(1000):
        storage.increase(f"name {number}", 3600)
    assert storage.read("guesser") == 7


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


def test_the_cookie_remembers_the_last_ones(app: Flask) -> None:
    value = ""
    for number in range(known_browser.MOST + 5):
        with app.test_request_context(headers={"Cookie": f"sso_known={value}"}):
            known_browser.remember(f"user{number}@example.com")
            response = app.response_class()
            known_browser.save(response)
            value = response.headers["Set-Cookie"].split("=", 1)[1].split(";")[0]
    assert len(value) < 500
    with app.test_request_context(headers={"Cookie": f"sso_known={value}"}):
        known = [n for n in range(20) if known_browser.id_for(f"user{n}@example.com")]
    assert known == list(range(5, 15))


def test_the_cookies_name_and_attributes(make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_BASE_URL="https://login.example.com/api/auth")
    with app.test_request_context():
        known_browser.remember("dana@example.com")
        response = app.response_class()
        known_browser.save(response)
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("__Host-sso_known=")
    for part in ("Secure", "HttpOnly", "Path=/", "SameSite=Lax"):
        assert part in cookie.split("; ")
    assert "Domain" not in cookie


def test_a_port_in_the_forwarded_address_makes_nobody_unknown() -> None:
    assert networks.of("198.51.100.7:51234") == networks.of("198.51.100.7")
    assert networks.of("[2001:db8::1]:51234") == networks.of("2001:db8::1")
