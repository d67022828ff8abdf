"""The attacker writes the same address in many ways, for a fresh budget of guesses each.

It ends at one count for one account, however its address is written; and the owner's browser is
known whatever way the owner types it.
"""

import pytest
from flask import Flask

from sso.models import User
from sso.ratelimit import device_cookie, limiting
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD

SPELLINGS = (
    "dana@example.com", "DANA@example.com", "dAna@example.com", " dana@example.com",
    "dana@example.com ", "Dana@Example.Com", "\tdana@example.com",
)  # fmt: skip
WRONG = "wrong wrong wrong"


def at(app: Flask, address: str) -> Browser:
    browser = Browser(app)
    browser.http.environ_base["REMOTE_ADDR"] = address
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    return browser


def guess(browser: Browser, email: str, password: str = WRONG) -> int:
    return browser.sign_in(email, password).status


@pytest.mark.parametrize("spelling", SPELLINGS[1:])
def test_one_budget_for_all_spellings(app: Flask, user: User, spelling: str) -> None:
    browser = at(app, "203.0.113.1")
    answers = [guess(browser, email) for email in [spelling, "dana@example.com"] * 4]
    assert answers == [200] * 6 + [429] * 2
    # Another account still has its own.
    assert guess(at(app, "203.0.113.1"), "erin@example.com") == 200


@pytest.mark.parametrize("spelling", SPELLINGS[1:])
def test_a_known_browser_is_known_by_any_spelling(app: Flask, user: User, spelling: str) -> None:
    own = at(app, "192.0.2.7")
    own.open(f"{ORIGIN}{BASE}/sign-in")
    own.submit(email=spelling, password=PASSWORD, remember="y")
    own.open(f"{ORIGIN}{BASE}/sign-out")
    own.submit(decision="sign_out")
    stranger = at(app, "192.0.2.7")
    while guess(stranger, "dana@example.com") != 429:
        pass
    own.open(f"{ORIGIN}{BASE}/sign-in")
    assert own.sign_in("dana@example.com", PASSWORD).path.endswith("/account")
    # A browser that nobody signed in from has to wait.
    assert guess(at(app, "192.0.2.7"), spelling, PASSWORD) == 429


@pytest.mark.parametrize("rule", [limiting.SECOND_FACTOR, limiting.PASSWORD_CHECK])
def test_the_other_counts_too(app: Flask, rule: limiting.Guessing) -> None:
    with app.test_request_context(environ_base={"REMOTE_ADDR": "203.0.113.1"}):
        for spelling in SPELLINGS[: rule.pair.free]:
            limiting.enter(rule, spelling).failed()
        limiting.enter(rule, SPELLINGS[-1])  # one at a time gets through a pause
        with pytest.raises(limiting.TooManyAttempts):
            limiting.enter(rule, SPELLINGS[0])
        limiting.enter(rule, "erin@example.com")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_cookie_knows_any_spelling(app: Flask, user: User, spelling: str) -> None:
    """Also where no form has tidied what was typed."""
    with app.test_request_context():
        device_cookie.remember(user)
        assert device_cookie.id_for(spelling)
        assert device_cookie.mark(spelling) == device_cookie.mark(user.email)
        assert not device_cookie.id_for("erin@example.com")
