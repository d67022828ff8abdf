"""RP-Initiated Logout 1.0."""

import pytest
from flask import Flask

from sso.models import User
from tests.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.conftest import Clock
from tests.factories import make_client

BYE = "https://books.example/bye?x=1"


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, post_logout_redirect_uris=[BYE])


def signed_in(browser: Browser) -> bool:
    return browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/account")


def end(browser: Browser, **parameters: str) -> None:
    from urllib.parse import urlencode

    browser.open(f"{ORIGIN}{BASE}/oauth2/end-session?{urlencode(parameters)}")


def test_with_a_hint_of_this_session(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    clock.move(days=2)  # an expired hint counts
    end(browser, id_token_hint=tokens["id_token"], post_logout_redirect_uri=BYE, state="a b")
    assert browser.page.url == BYE + "&state=a%20b"
    assert not signed_in(browser)
    assert client.userinfo(tokens["access_token"]).status_code == 401


def test_without_a_hint_it_asks(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client)
    end(browser, client_id=client.client_id, post_logout_redirect_uri=BYE)
    assert ("decision", "sign_out") in browser.page.buttons
    assert "Books" in browser.page.html
    question = browser.page
    browser.submit(decision="stay")
    assert signed_in(browser)
    browser.page = question
    browser.submit(decision="sign_out")
    assert browser.page.is_at_server
    assert not signed_in(browser)


@pytest.mark.parametrize(
    "more",
    [
        {"post_logout_redirect_uri": "https://evil.example/"},
        {"post_logout_redirect_uri": BYE + "2"},
        {"post_logout_redirect_uri": BYE, "client_id": "nobody"},
    ],
)
def test_an_unregistered_address_never_redirects(
    browser: Browser, client: RelyingParty, user: User, more: dict[str, str]
) -> None:
    hint = client.exchange(browser.approve(client).code).get_json()["id_token"]
    end(browser, id_token_hint=hint, **more)
    assert browser.page.is_at_server


@pytest.mark.parametrize("kind", ["tampered", "access token", "garbage"])
def test_a_bad_hint_never_redirects(
    browser: Browser, client: RelyingParty, user: User, kind: str
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    hints = {"tampered": tokens["id_token"][:-4] + "AAAA", "access token": tokens["access_token"]}
    end(browser, id_token_hint=hints.get(kind, kind), post_logout_redirect_uri=BYE)
    assert browser.page.is_at_server
    assert browser.page.status == 400
    assert signed_in(browser)


def test_nobody_signed_in(browser: Browser) -> None:
    end(browser)
    assert browser.page.status == 200
