"""The attacker has an authenticator, a phishing site, or an answer that was seen on the way.

It ends at the exact origin, the user whom the key belongs to, and a challenge that is bound to
the browser and answered once.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from sso import clock
from sso.extensions import db
from sso.mfa import passkeys
from sso.models import User
from sso.ratelimit.storage import LimitStorage
from sso.store import factors
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.authenticator import Authenticator, options_of
from tests.support.events import events
from tests.support.factories import make_user
from tests.support.second_factors import FACTORS, enrol_passkey, is_signed_in, sign_in_by_passkey

pytestmark = pytest.mark.slow

SIGN_IN = f"{ORIGIN}{BASE}/sign-in"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}")


@pytest.fixture
def key(app: Flask, user: User) -> Authenticator:
    """The victim's passkey."""
    browser, authenticator = Browser(app), Authenticator()
    browser.sign_in()
    enrol_passkey(browser, authenticator)
    return authenticator


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:5001", "https://localhost:5000", "http://evil.localhost:5000",
     "http://localhost.evil.example:5000"],
)  # fmt: skip
def test_for_another_origin(browser: Browser, key: Authenticator, origin: str) -> None:
    browser.open(SIGN_IN)
    key.origin = origin
    assert "problem=passkey" in sign_in_by_passkey(browser, key).url
    assert not is_signed_in(browser)


def test_enrolled_at_another_origin(browser: Browser, user: User) -> None:
    browser.sign_in()
    page = enrol_passkey(browser, Authenticator(origin="http://localhost:5001"))
    assert "could not be set up" in page.html


def test_as_another_user(app: Flask, browser: Browser, key: Authenticator, user: User) -> None:
    """Mallory's key, claiming to be the victim's; and after the victim's password."""
    make_user(app, "mallory@example.com", name="Mallory")
    mallory, own = Browser(app), Authenticator()
    mallory.sign_in("mallory@example.com")
    enrol_passkey(mallory, own)
    browser.open(SIGN_IN)
    assert "problem=passkey" in sign_in_by_passkey(browser, own, handle=key.handle).url
    page = browser.sign_in()
    for handle in ("", own.handle, key.handle):
        answer = own.get(options_of(page), handle=handle)
        assert browser.submit(credential=answer).path.endswith("/second-factor")
    own.id = key.id  # the victim's credential, signed by Mallory's key
    browser.submit(credential=own.get(options_of(page), handle=key.handle))
    assert not is_signed_in(browser)


def changed_handle(answer: str, handle: str | None) -> str:
    """An answer whose user handle is missing, `null` or another one; no signature covers it."""
    content = json.loads(answer)
    content["response"].pop("userHandle")
    if handle is not None:
        content["response"]["userHandle"] = None if handle == "null" else handle
    return json.dumps(content)


@pytest.mark.parametrize("handle", [None, "null", "", "AAAA"])
def test_a_passkey_alone_has_to_name_its_user(
    browser: Browser, key: Authenticator, handle: str | None
) -> None:
    """WebAuthn §7.2 step 6: an authenticator that cannot say whose key it is was only a second
    factor (U2F), of which nobody knows whether it verified the user for this account."""
    page = browser.open(SIGN_IN)
    answer = changed_handle(key.get(options_of(page)), handle)
    form = {**page.fields, "credential": answer}
    browser.open(f"{BASE}/sign-in/passkey", method="POST", data=form)
    assert "problem=passkey" in browser.page.url
    assert not is_signed_in(browser)


@pytest.mark.parametrize("handle", [None, "null", ""])
def test_as_a_second_factor_it_need_not(
    browser: Browser, key: Authenticator, handle: str | None
) -> None:
    page = browser.sign_in()
    answer = changed_handle(key.get(options_of(page)), handle)
    assert browser.submit(credential=answer).path.endswith("/account")


@pytest.mark.parametrize(("length", "is_taken"), [(0, True), (1, False)])
def test_an_answer_that_is_too_long_is_not_read(
    app: Flask, browser: Browser, key: Authenticator, length: int, is_taken: bool
) -> None:
    """Alone and as a second factor; without the spaces, it would be right."""
    page = browser.open(SIGN_IN)
    most = passkeys.MAX_TEXT + length
    form = {**page.fields, "credential": key.get(options_of(page)).ljust(most)}
    browser.open(f"{BASE}/sign-in/passkey", method="POST", data=form)
    assert is_signed_in(browser) is is_taken
    other = Browser(app)
    page = other.sign_in()
    other.submit(credential=key.get(options_of(page)).ljust(most))
    assert is_signed_in(other) is is_taken


def test_a_passkey_is_registered_once(app: Flask, browser: Browser, key: Authenticator) -> None:
    """Taking the victim's credential into one's own account."""
    make_user(app, "mallory@example.com", name="Mallory")
    browser.sign_in("mallory@example.com")
    assert "already registered" in enrol_passkey(browser, key).html


def test_without_user_verification(app: Flask, browser: Browser, key: Authenticator) -> None:
    browser.open(SIGN_IN)
    sign_in_by_passkey(browser, key, verified=False)
    assert not is_signed_in(browser)
    assert [event["method"] for event in events(app, "sign_in_failed")] == ["passkey"]


def test_an_answer_is_taken_once(app: Flask, browser: Browser, key: Authenticator) -> None:
    """Even by the browser that it belongs to, with its whole cookie of then."""
    key.synced = True  # such keys count nothing: only the challenge tells a replay
    page = browser.open(SIGN_IN)
    answer = key.get(options_of(page))
    form = {**page.fields, "credential": answer}
    cookie = browser.http.get_cookie("sso_browser", path=BASE, domain="127.0.0.1")
    assert cookie
    assert browser.open(f"{BASE}/sign-in/passkey", method="POST", data=form).path.endswith(
        "/account"
    )
    thief = Browser(app)
    thief.http.set_cookie("sso_browser", cookie.value, path=BASE, domain="127.0.0.1")
    thief.open(f"{ORIGIN}{BASE}/sign-in/passkey", method="POST", data=form)
    assert not is_signed_in(thief)


def test_a_challenge_of_another_browser(app: Flask, browser: Browser, key: Authenticator) -> None:
    browser.open(SIGN_IN)
    stranger = Browser(app)
    page = stranger.open(SIGN_IN)
    form = {**browser.page.fields, "csrf_token": page.fields["csrf_token"]}
    form["credential"] = key.get(options_of(browser.page))
    stranger.open(f"{BASE}/sign-in/passkey", method="POST", data=form)
    assert not is_signed_in(stranger)


def test_a_challenge_that_is_too_old(browser: Browser, clock: Clock, key: Authenticator) -> None:
    browser.open(SIGN_IN)
    clock.move(hours=25)
    assert "problem=passkey" in sign_in_by_passkey(browser, key).url


@pytest.mark.parametrize(("late", "is_taken"), [(-1, True), (0, True), (1, False)])
def test_a_challenge_for_the_second_factor_is_good_for_ten_minutes(
    browser: Browser, clock: Clock, key: Authenticator, late: int, is_taken: bool
) -> None:
    """Although the one for a sign-in is good as long as its page."""
    browser.open(SIGN_IN)
    sign_in_by_passkey(browser, key)
    clock.move(minutes=20)
    clock.stand_still()
    page = browser.open(f"{ORIGIN}{BASE}/second-factor?back=email")
    assert page.path.endswith("/second-factor")
    answer = key.get(options_of(page))
    clock.move(seconds=600 + late)
    assert browser.submit(credential=answer).path.endswith("/account/email") is is_taken


def test_a_cloned_key(browser: Browser, app: Flask, key: Authenticator) -> None:
    """WebAuthn §6.1.1: a counter that does not grow."""
    key.count = 10
    browser.open(SIGN_IN)
    sign_in_by_passkey(browser, key)
    assert is_signed_in(browser)
    key.count = 5
    other = Browser(app)
    other.open(SIGN_IN)
    assert "problem=passkey" in sign_in_by_passkey(other, key).url


def test_of_a_disabled_user(app: Flask, browser: Browser, key: Authenticator, user: User) -> None:
    assert app.test_cli_runner().invoke(args=["user", "disable", user.email]).exit_code == 0
    browser.open(SIGN_IN)
    assert "problem=passkey" in sign_in_by_passkey(browser, key).url


def test_of_a_user_who_is_disabled_at_this_moment(
    app: Flask, browser: Browser, key: Authenticator, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the passkey was looked up with its user."""
    find = factors.find_passkey_with_user

    def and_then(credential_id: str) -> Any:
        found = find(credential_id)
        db.session.execute(update(User).values(disabled_at=clock.now()))
        return found

    monkeypatch.setattr(factors, "find_passkey_with_user", and_then)
    browser.open(SIGN_IN)
    assert "problem=passkey" in sign_in_by_passkey(browser, key).url
    assert not is_signed_in(browser)


def test_without_the_csrf_token(browser: Browser, key: Authenticator) -> None:
    page = browser.open(SIGN_IN)
    page.fields.pop("csrf_token")
    sign_in_by_passkey(browser, key)
    assert not is_signed_in(browser)


def test_nobody_removes_a_strangers_passkey(
    app: Flask, browser: Browser, key: Authenticator, user: User
) -> None:
    make_user(app, "mallory@example.com", name="Mallory")
    browser.sign_in("mallory@example.com")
    enrol_passkey(browser, Authenticator())
    victim = Browser(app)
    victim.open(SIGN_IN)
    sign_in_by_passkey(victim, key)
    (passkey,) = re.findall(r"remove_passkey&amp;passkey=([0-9a-f-]+)", victim.open(FACTORS).html)
    browser.open(FACTORS)
    assert (
        "passkey was already removed"
        in browser.submit(action="remove_passkey", passkey=passkey).html
    )
    assert passkey in victim.open(FACTORS).html


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["id", "rawId", "type", "response", "clientDataJSON", "userHandle",
                         "authenticatorData", "signature", "attestationObject"]),
        inner,
        max_size=6,
    ),
    max_leaves=12,
)  # fmt: skip


@given(answer=JSON.map(json.dumps) | st.text(max_size=200))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_rubbish(app: Flask, browser: Browser, answer: Any, user: User) -> None:
    app.extensions["sso.limits"] = LimitStorage(None)
    page = browser.open(SIGN_IN)
    form = {**page.fields, "credential": answer}
    page = browser.open(f"{BASE}/sign-in/passkey", method="POST", data=form)
    assert (page.status, page.path.endswith("/sign-in")) == (200, True)
