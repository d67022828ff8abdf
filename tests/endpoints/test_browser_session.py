"""Browser sessions: lifetimes, "keep me signed in", and the cookie."""

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD

ACCOUNT = f"{ORIGIN}{BASE}/account"


def signed_in(browser: Browser) -> bool:
    return browser.open(ACCOUNT).path.endswith("/account")


def cookies(browser: Browser) -> list[str]:
    """What was set by the answer to the sign-in form."""
    answers = [r for r in browser.history if r.request.method == "POST"]
    found = answers[-1].headers.getlist("Set-Cookie")
    return [one for one in found if not one.startswith("sso_known=")]


def test_it_ends_when_it_is_not_used(browser: Browser, user: User, clock: Clock) -> None:
    browser.sign_in()
    clock.move(days=13)
    assert signed_in(browser)
    clock.move(days=13)
    assert signed_in(browser)
    clock.move(days=15)
    assert not signed_in(browser)


def test_it_ends_however_much_it_is_used(browser: Browser, user: User, clock: Clock) -> None:
    browser.sign_in()
    for _ in range(17):
        clock.move(days=5)
        assert signed_in(browser)
    clock.move(days=5)
    assert not signed_in(browser)


def test_keep_me_signed_in_is_a_choice(app: Flask, user: User) -> None:
    for ticked in (False, True):
        browser = Browser(app)
        page = browser.open(f"{ORIGIN}{BASE}/sign-in")
        assert "remember" not in page.fields  # not ticked beforehand
        form = {"email": user.email, "password": PASSWORD}
        browser.submit(**form, **({"remember": "1"} if ticked else {}))
        (cookie,) = cookies(browser)
        assert ("Expires=" in cookie or "Max-Age=" in cookie) == ticked
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert f"Path={BASE}" in cookie


@pytest.mark.parametrize("remember", [True, False])
def test_signing_in_again_keeps_the_choice(
    browser: Browser, user: User, client: object, remember: bool
) -> None:
    from tests.support.actors import RelyingParty

    assert isinstance(client, RelyingParty)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    form = {"email": user.email, "password": PASSWORD}
    browser.submit(**form, **({"remember": "1"} if remember else {}))
    browser.authorize(client, prompt="login")
    browser.sign_in()
    assert any("Expires=" in one for one in cookies(browser)) == remember
