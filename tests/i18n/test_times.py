"""Times as people say them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask, g
from flask_babel import force_locale

from sso.i18n import times
from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, Browser
from tests.support.factories import make_user

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BERLIN = "Europe/Berlin"


@pytest.fixture
def told(app: Flask, clock: Clock) -> Callable[..., str]:
    """The time so long ago, in a language, for a reader with this claim."""

    def tell(zone: object, tag: str = "en", **ago: float) -> str:
        clock.time = NOW
        with app.test_request_context(), force_locale(tag):
            mine = times._zone(zone)
            g.sso_zone = mine or times._here().default, mine is not None
            return times.ago(NOW - timedelta(**ago)).replace("\u202f", " ")

    return tell


def test_how_long_ago(told: Callable[..., str]) -> None:
    said = [
        told(BERLIN, **ago)
        for ago in (
            {"seconds": -90},
            {"seconds": 59},
            {"minutes": 1},
            {"minutes": 59.9},
            {"hours": 1.9},
            {"hours": 5.99},
            {"hours": 6},
            {"hours": 12, "minutes": 59},
            {"hours": 13, "minutes": 1},
            {"days": 2},
            {"days": 365},
        )
    ]
    assert said == [
        "just now",
        "just now",
        "1 minute ago",
        "59 minutes ago",
        "1 hour ago",
        "5 hours ago",
        "today at 7:00 AM",
        "today at 12:01 AM",
        "yesterday at 11:59 PM",
        "Nov 19 at 1:00 PM",
        "Nov 21, 2025 at 1:00 PM",
    ]


def test_in_each_language(told: Callable[..., str]) -> None:
    assert told(BERLIN, "de", days=1) == "gestern um 13:00"
    assert told(BERLIN, "fr", hours=2) == "il y a 2 heures"
    assert told(BERLIN, "es", days=3) == "18 nov, 13:00"
    assert told(BERLIN, "ja", days=400) == "2025年10月17日 14:00"  # in summer
    assert told(BERLIN, "ar", hours=2) == "قبل ساعتين"


@pytest.mark.parametrize(
    "zone",
    [None, "", "Mars/Olympus", "../../etc/passwd", "Europe", "x" * 5000, "a\0b", "\ud800", 7, {}],
)
def test_without_a_zone_of_ones_own_it_is_named(told: Callable[..., str], zone: object) -> None:
    assert told(zone, days=1) == "yesterday at 12:00 PM UTC"


@pytest.mark.parametrize(
    ("zone", "offset"),
    [(BERLIN, "UTC+1"), ("Asia/Kolkata", "UTC+5:30"), ("America/St_Johns", "UTC-3:30"),
     ("UTC", "UTC"), ("Pacific/Chatham", "UTC+13:45")],
)  # fmt: skip
def test_exactly(app: Flask, zone: str, offset: str) -> None:
    with app.test_request_context():
        said = times.moment(NOW, times.zone_for(zone))
    assert said.startswith("November 2")
    assert said.endswith(f" {offset}")


def test_a_setting_has_the_zone_for_all_others(make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_TIME_ZONE="Asia/Tokyo")
    with app.test_request_context():
        assert times.moment(NOW).endswith("9:00\u202fPM UTC+9")


def test_the_account_says_them(app: Flask, user: User, clock: Clock) -> None:
    make_user(app, "erin@example.com", claims={"zoneinfo": "Asia/Tokyo"})
    said = []
    for email in (user.email, "erin@example.com"):
        browser = Browser(app)
        browser.sign_in(email)
        clock.move(hours=7)
        html = browser.open(f"{BASE}/account").html
        said.append(html.partition("signed in ")[2].partition("</time>")[0])
        clock.move(hours=-7)
    assert said[0].startswith('<time datetime="2026-11-21T12:00:00')
    assert said[0].endswith(">today at 12:00\u202fPM UTC")
    assert said[1].endswith(">yesterday at 9:00\u202fPM")
    assert "UTC+9" in said[1]  # the title


def test_how_long_to_wait(app: Flask) -> None:
    """The language counts: Arabic has another word for two, for a few and for many."""
    said = []
    for tag in ("en", "ar"):
        with app.test_request_context(), force_locale(tag):
            said += [times.duration(seconds) for seconds in (1, 2, 11, 89, 90, 901, 3600)]
    assert not any(" " in text for text in said)
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in said] == [
        "1 second",
        "2 seconds",
        "11 seconds",
        "89 seconds",
        "2 minutes",
        "16 minutes",
        "60 minutes",
        "ثانية",
        "ثانيتان",
        "11 ثانية",
        "89 ثانية",
        "دقيقتان",
        "16 دقيقة",
        "60 دقيقة",
    ]
