"""One browser, two people; or a browser whose cookie somebody else has planted.

It ends at a sign-in that takes nothing over: the session, the tokens and the cookie of the one who
was there before are gone.
"""

from typing import Any
from urllib.parse import urlencode

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, claims_of
from tests.support.factories import make_client, make_user
from tests.support.second_factors import ASK, code_of, enrol_totp, is_signed_in

pytestmark = pytest.mark.slow

ERIN = "erin@example.com"
ACCOUNT = f"{ORIGIN}{BASE}/account"


@pytest.fixture
def erin(app: Flask) -> User:
    return make_user(app, ERIN, name="Erin")


def cookie(browser: Browser) -> str:
    found = browser.http.get_cookie("sso_browser", path=BASE, domain="127.0.0.1")
    assert found is not None
    return found.value


def plant(browser: Browser, value: str) -> None:
    browser.http.set_cookie("sso_browser", value, path=BASE, domain="127.0.0.1")


@pytest.mark.parametrize("who", ["another", "the same"])
def test_another_person_ends_the_first_ones_session(
    app: Flask, browser: Browser, client: RelyingParty, user: User, erin: User, who: str
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    sid = claims_of(tokens["id_token"])["sid"]
    old = cookie(browser)
    browser.authorize(client, prompt="login")
    browser.sign_in(*([ERIN] if who == "another" else []))
    thief = Browser(app)
    plant(thief, old)
    assert not is_signed_in(thief)
    lives = client.userinfo(tokens["access_token"]).status_code == 200
    refreshed = client.refresh(tokens["refresh_token"]).status_code == 200
    assert (lives, refreshed) == ((False, False) if who == "another" else (True, True))
    page = browser.allow() if browser.page.buttons else browser.page
    fresh = claims_of(client.exchange(page.code).get_json()["id_token"])
    assert (fresh["sid"] == sid) == (who == "the same")
    assert fresh["sub"] == str(erin.id if who == "another" else user.id)


def test_another_persons_second_factor_is_not_the_first_ones(
    app: Flask, browser: Browser, user: User, erin: User, clock: Clock
) -> None:
    """What one person has proven does not count for the next one on the same browser."""
    client = make_client(app, require_mfa=True)
    browser.sign_in()
    enrol_totp(browser)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in(ERIN)
    assert "code" not in browser.authorize(client).parameters
    assert browser.page.path.endswith("/account/factors")


def test_signing_in_anew_with_the_password_alone_is_one_factor(
    browser: Browser, client: RelyingParty, user: User, clock: Clock
) -> None:
    """`acr` is of this sign-in, not of the one before."""
    browser.sign_in()
    secret, _ = enrol_totp(browser)
    clock.move(minutes=1)
    browser.authorize(client, prompt="login")
    browser.sign_in()
    assert browser.page.path.endswith("/second-factor")
    page = browser.submit(code=code_of(secret))
    page = browser.allow() if browser.page.buttons else page
    claims = claims_of(client.exchange(page.code).get_json()["id_token"])
    assert set(claims["amr"]) == {"pwd", "otp", "mfa"}
    assert claims["auth_time"] == int(clock.time.timestamp())


def test_a_factor_that_is_gone_counts_no_more_when_signing_in_anew(
    app: Flask, browser: Browser, user: User, clock: Clock
) -> None:
    """The session goes on; what it has proven is of the newest sign-in."""
    client = make_client(app, require_mfa=True, first_party=True)
    browser.sign_in()
    enrol_totp(browser)
    assert browser.authorize(client).code
    browser.open(f"{ASK}remove_totp")
    browser.submit(action="remove_totp")
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in()
    assert "code" not in browser.authorize(client).parameters
    assert browser.page.path.endswith("/account/factors")


def test_the_token_of_a_form_from_before_the_sign_in_is_worth_nothing(
    app: Flask, user: User
) -> None:
    """The attacker plants a cookie of their own, whose CSRF token they know."""
    attacker, victim, elsewhere = Browser(app), Browser(app), Browser(app)
    known = attacker.open(f"{ORIGIN}{BASE}/sign-in").fields["csrf_token"]
    elsewhere.sign_in()
    plant(victim, cookie(attacker))
    assert victim.sign_in().path.endswith("/account")
    right = victim.page.fields["csrf_token"]
    form = {"action": "end_other_sessions", "csrf_token": known}
    victim.open(ACCOUNT, method="POST", data=form)
    assert is_signed_in(elsewhere)
    victim.open(ACCOUNT, method="POST", data={**form, "csrf_token": right})
    assert not is_signed_in(elsewhere)


def test_signing_out_leaves_nothing_in_the_cookie(browser: Browser, user: User) -> None:
    browser.sign_in()
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    token = browser.page.fields["csrf_token"]
    browser.submit(decision="sign_out")
    left = browser.http.get_cookie("sso_browser", path=BASE, domain="127.0.0.1")
    assert left is None or token not in left.value
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    assert browser.page.fields["csrf_token"] != token


@pytest.fixture
def tokens(browser: Browser, client: RelyingParty, user: User) -> dict[str, Any]:
    found: dict[str, Any] = client.exchange(browser.approve(client).code).get_json()
    return found


def end(browser: Browser, **parameters: str) -> None:
    browser.open(f"{ORIGIN}{BASE}/oauth2/end-session?{urlencode(parameters)}")


def test_a_hint_of_another_session_of_the_same_person_asks(
    app: Flask, browser: Browser, tokens: dict[str, Any]
) -> None:
    """The right `sub` with another `sid`: anyone who has an old identity token ends no session."""
    other = Browser(app)
    other.sign_in()
    end(other, id_token_hint=tokens["id_token"])
    assert ("decision", "sign_out") in other.page.buttons
    assert is_signed_in(other)
    assert is_signed_in(browser)


def test_a_hint_of_another_person_asks(
    app: Flask, tokens: dict[str, Any], browser: Browser, erin: User
) -> None:
    other = Browser(app)
    other.sign_in(ERIN)
    end(other, id_token_hint=tokens["id_token"])
    assert ("decision", "sign_out") in other.page.buttons
    assert is_signed_in(other)
    assert is_signed_in(browser)


def test_a_hint_of_the_sign_in_before_asks(browser: Browser, tokens: dict[str, Any]) -> None:
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in()
    end(browser, id_token_hint=tokens["id_token"])
    assert ("decision", "sign_out") in browser.page.buttons
    assert is_signed_in(browser)
