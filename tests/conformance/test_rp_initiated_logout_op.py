"""The certification plan "RP-Initiated Logout OP", and Back-Channel's one: a test a module."""

from urllib.parse import urlencode

import pytest
from flask import Flask
from sqlalchemy import select

from sso.extensions import db
from sso.models import LogoutDelivery, User
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty, claims_of
from tests.support.factories import make_client

BYE = "https://rp.example/bye"


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(
        app,
        post_logout_redirect_uris=[BYE],
        backchannel_logout_uri="https://rp.example/backchannel",
    )


@pytest.fixture
def hint(browser: Browser, client: RelyingParty, user: User) -> str:
    """Somebody is signed in; their identity token."""
    token: str = client.exchange(browser.approve(client).code).get_json()["id_token"]
    return token


def log_out(browser: Browser, **parameters: str) -> Page:
    return browser.open(f"{ORIGIN}{BASE}/oauth2/end-session?{urlencode(parameters)}")


def is_signed_in(browser: Browser, client: RelyingParty) -> bool:
    """As the suite finds out: by `prompt=none`."""
    return browser.authorize(client, prompt="none").error is None


def asks(page: Page) -> bool:
    return ("decision", "sign_out") in page.buttons


def has_way_on(page: Page) -> bool:
    return page.is_at_server and "<a " in page.html and page.status in (200, 400)


def test_oidcc_rp_initiated_logout(browser: Browser, client: RelyingParty, hint: str) -> None:
    page = log_out(browser, id_token_hint=hint, post_logout_redirect_uri=BYE, state="s1")
    assert page.url == f"{BYE}?state=s1"
    assert not is_signed_in(browser, client)


def test_oidcc_rp_initiated_logout_bad_post_logout_redirect_uri(
    browser: Browser, client: RelyingParty, hint: str
) -> None:
    page = log_out(browser, id_token_hint=hint, post_logout_redirect_uri="https://rp.example/x")
    assert has_way_on(page)


def test_oidcc_rp_initiated_logout_query_added_to_post_logout_redirect_uri(
    browser: Browser, client: RelyingParty, hint: str
) -> None:
    page = log_out(browser, id_token_hint=hint, post_logout_redirect_uri=f"{BYE}?foo=bar")
    assert has_way_on(page)


def test_oidcc_rp_initiated_logout_modified_id_token_hint(
    browser: Browser, client: RelyingParty, hint: str
) -> None:
    head, body, signature = hint.split(".")
    changed = f"{head}.{body}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}"
    page = log_out(browser, id_token_hint=changed, post_logout_redirect_uri=BYE, state="s")
    assert has_way_on(page)


def test_oidcc_rp_initiated_logout_bad_id_token_hint(
    browser: Browser, client: RelyingParty, hint: str
) -> None:
    page = log_out(browser, id_token_hint="not a token", post_logout_redirect_uri=BYE, state="s")
    assert has_way_on(page)


def test_oidcc_rp_initiated_logout_no_id_token_hint(
    browser: Browser, client: RelyingParty, hint: str
) -> None:
    page = log_out(browser, post_logout_redirect_uri=BYE, state="s")
    assert page.is_at_server
    if asks(page):
        page = browser.submit(decision="sign_out")
    assert has_way_on(page)


def test_oidcc_rp_initiated_logout_no_params(
    browser: Browser, client: RelyingParty, hint: str
) -> None:
    assert asks(log_out(browser))
    assert has_way_on(browser.submit(decision="sign_out"))
    assert not is_signed_in(browser, client)


def test_oidcc_rp_initiated_logout_only_state(
    browser: Browser, client: RelyingParty, hint: str
) -> None:
    assert asks(log_out(browser, state="s"))
    assert has_way_on(browser.submit(decision="sign_out"))
    assert not is_signed_in(browser, client)


def test_oidcc_rp_initiated_logout_no_state(
    browser: Browser, client: RelyingParty, hint: str
) -> None:
    page = log_out(browser, id_token_hint=hint, post_logout_redirect_uri=BYE)
    assert page.url == BYE
    assert not is_signed_in(browser, client)


def test_oidcc_rp_initiated_logout_no_post_logout_redirect_uri(
    browser: Browser, client: RelyingParty, hint: str
) -> None:
    assert has_way_on(log_out(browser, id_token_hint=hint, state="s"))
    assert not is_signed_in(browser, client)


def test_oidcc_backchannel_rp_initiated_logout(
    app: Flask, browser: Browser, client: RelyingParty, hint: str
) -> None:
    log_out(browser, id_token_hint=hint, post_logout_redirect_uri=BYE, state="s")
    with app.app_context():
        (owed,) = db.session.scalars(select(LogoutDelivery))
    claims = claims_of(hint)
    assert (owed.client_id, owed.sub, owed.sid) == (claims["aud"], claims["sub"], claims["sid"])
