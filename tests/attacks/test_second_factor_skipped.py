"""The attacker has the password, and wants in without the second factor.

It ends at a session that is not begun before the factor was shown.
"""

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso.extensions import db
from sso.models import BrowserSession, User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_user
from tests.support.second_factors import ASK, FACTORS, code_of, enrol_totp, is_signed_in

pytestmark = pytest.mark.slow


@pytest.fixture
def secret(app: Flask, clock: Clock, user: User) -> str:
    browser = Browser(app)
    browser.sign_in()
    found, _ = enrol_totp(browser)
    clock.move(seconds=60)
    return found


def sessions(app: Flask) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(BrowserSession)) or 0


def test_no_other_page_opens(
    app: Flask, browser: Browser, client: RelyingParty, secret: str
) -> None:
    before = sessions(app)
    waiting = browser.authorize(client).url.partition("?")[2]
    assert browser.sign_in().path.endswith("/second-factor")
    for path in ("account", "account/factors", "account/factors/totp", "second-factor"):
        page = browser.open(f"{ORIGIN}{BASE}/{path}")
        assert page.path.endswith(("/sign-in", "/second-factor")), path
    for path in ("oauth2/authorize", "consent", "account/factors"):
        page = browser.open(f"{ORIGIN}{BASE}/{path}?{waiting}")
        assert page.path.endswith("/sign-in"), path
    assert browser.authorize(client, prompt="none").error == "login_required"
    assert sessions(app) == before


def test_factors_are_not_removed_half_way(browser: Browser, secret: str) -> None:
    page = browser.sign_in()
    browser.open(FACTORS, method="POST", data={**page.fields, "action": "remove_totp", "code": ""})
    browser.sign_in()
    assert "action=remove_totp" in browser.submit(code=code_of(secret)).html


def test_signing_in_as_oneself_does_not_help(app: Flask, browser: Browser, secret: str) -> None:
    """Half way into the victim's account, with the attacker's own factor."""
    make_user(app, "mallory@example.com", name="Mallory")
    mallory = Browser(app)
    mallory.sign_in("mallory@example.com")
    own, codes = enrol_totp(mallory)
    browser.sign_in()
    for form in ({"code": code_of(own, 1)}, {"recovery_code": codes[0]}):
        assert browser.submit(**form).path.endswith("/second-factor")
    assert not is_signed_in(browser)


def test_half_way_is_bound_to_its_browser(app: Flask, browser: Browser, secret: str) -> None:
    """A code that was shoulder-surfed is worth nothing without the password."""
    browser.sign_in()
    stranger = Browser(app)
    stranger.open(f"{ORIGIN}{BASE}/sign-in")
    page = stranger.open(f"{ORIGIN}{BASE}/second-factor")
    assert page.path.endswith("/sign-in")
    stranger.open(
        f"{ORIGIN}{BASE}/second-factor",
        method="POST",
        data={**page.fields, "code": code_of(secret)},
    )
    assert not is_signed_in(stranger)


def test_an_old_session_changes_no_factors(
    app: Flask, browser: Browser, user: User, clock: Clock
) -> None:
    """A browser left open: enrolling and removing need a fresh sign-in."""
    browser.sign_in()
    enrol_totp(browser)
    page = browser.open(f"{ASK}new_codes")
    clock.move(minutes=6)
    for action in ("remove_totp", "new_codes", "add_passkey"):
        browser.page = page
        assert browser.submit(action=action).path.endswith("/sign-in")
    assert "Remove" not in browser.open(FACTORS).html
    assert browser.open(f"{FACTORS}/totp").path.endswith("/account/factors")


@pytest.mark.parametrize("action", ["remove_totp", "new_codes", "add_passkey"])
def test_a_session_of_one_factor_changes_none(
    app: Flask, browser: Browser, user: User, action: str
) -> None:
    """Such sessions end with the first factor; should one be left, it is worth nothing."""
    browser.sign_in()
    enrol_totp(browser)
    browser.open(f"{ASK}new_codes")
    with app.app_context():
        db.session.execute(update(BrowserSession).values(acr="1"))
        db.session.commit()
    assert browser.submit(action=action).path.endswith("/sign-in")


def test_sign_ins_by_the_stolen_password_end(app: Flask, browser: Browser, user: User) -> None:
    thief = Browser(app)
    thief.sign_in()
    browser.sign_in()
    enrol_totp(browser)
    assert not is_signed_in(thief)
    assert is_signed_in(browser)


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("account/factors", {"action": "remove_totp"}),
        ("account/factors", {"action": "new_codes"}),
        ("account/factors", {"action": "add_passkey", "name": "x", "credential": "{}"}),
        ("account/factors/totp", {"code": "000000"}),
    ],
)
def test_without_the_csrf_token(
    browser: Browser, user: User, path: str, form: dict[str, str]
) -> None:
    browser.sign_in()
    enrol_totp(browser)
    before = browser.open(FACTORS).html.count("<li>")
    answer = browser.http.post(f"{BASE}/{path}", data=form, base_url=ORIGIN)
    assert answer.status_code == 303
    page = browser.open(FACTORS)
    assert page.html.count("<li>") == before
    assert "Codes left: 10" in page.html
