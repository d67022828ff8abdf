"""The question before something ends, and that it says the truth."""

from html import unescape

import pytest
from flask import Flask

from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client
from tests.support.second_factors import FACTORS, codes_of, enrol_totp, is_signed_in

pytestmark = pytest.mark.slow

CONFIRM = f"{ORIGIN}{BASE}/account/confirm"


@pytest.fixture
def signed_in(browser: Browser, user: User) -> Browser:
    browser.sign_in()
    return browser


def test_it_asks_before_everywhere(app: Flask, signed_in: Browser) -> None:
    other = Browser(app)
    other.sign_in()
    offline = make_client(app, name="Sync & Co", scope="openid offline_access")
    offline.exchange(signed_in.approve(offline, scope="openid offline_access").code)
    page = signed_in.open(f"{CONFIRM}?action=end_all_sessions")
    assert "Sessions that end: 2, including this one." in page.html
    assert "stays until you withdraw it: Sync &amp; Co." in page.html
    assert is_signed_in(other)
    signed_in.open(f"{CONFIRM}?action=end_all_sessions")
    signed_in.submit(action="end_all_sessions")
    assert not is_signed_in(other)
    assert not is_signed_in(signed_in)


def test_it_asks_before_all_others(app: Flask, signed_in: Browser) -> None:
    other = Browser(app)
    other.sign_in()
    page = signed_in.open(f"{CONFIRM}?action=end_other_sessions")
    assert "Sessions that end: 1. This one stays." in page.html
    assert "until you withdraw it" not in page.html
    assert signed_in.submit(action="end_other_sessions").path.endswith("/account")
    assert not is_signed_in(other)


def test_it_asks_before_access_is_withdrawn(
    app: Flask, signed_in: Browser, client: RelyingParty
) -> None:
    tokens = client.exchange(signed_in.approve(client).code).get_json()
    page = signed_in.open(f"{CONFIRM}?action=withdraw&client={client.client_id}")
    assert "<h1>Withdraw access of Books?</h1>" in page.html
    assert client.userinfo(tokens["access_token"]).status_code == 200
    signed_in.submit(action="withdraw")
    assert client.userinfo(tokens["access_token"]).status_code == 401


def test_it_asks_before_factors_and_codes_end(signed_in: Browser) -> None:
    _, codes = enrol_totp(signed_in)
    page = signed_in.open(f"{CONFIRM}?action=new_codes")
    assert "stop working: 10." in page.html
    fresh = codes_of(signed_in.submit(action="new_codes"))
    assert len(fresh) == 10
    assert not set(fresh) & set(codes)
    page = signed_in.open(f"{CONFIRM}?action=remove_totp")
    assert "your only second factor" in page.html
    page = signed_in.submit(action="remove_totp")
    assert page.url.startswith(f"{FACTORS}?done=")


@pytest.mark.parametrize(
    "query",
    ["", "action=", "action=delete_all", "action=withdraw", "action=withdraw&client=%00",
     "action=remove_passkey&passkey=1", "action=remove_totp", "action=new_codes",
     "action=end_all_sessions'%22%3E&client=x"],
)  # fmt: skip
def test_there_is_nothing_to_ask(signed_in: Browser, query: str) -> None:
    assert signed_in.open(f"{CONFIRM}?{query}").path == f"{BASE}/account"


def test_it_needs_a_sign_in_and_changes_nothing(app: Flask, user: User) -> None:
    assert Browser(app).open(f"{CONFIRM}?action=end_all_sessions").path.endswith("/sign-in")
    assert app.test_client().post(f"{BASE}/account/confirm").status_code in (303, 405)


def test_the_pending_request_goes_on(app: Flask, signed_in: Browser) -> None:
    """From the page of factors that a client requires, to the question and back."""
    client = make_client(app, require_mfa=True)
    signed_in.authorize(client)
    resume = signed_in.page.parameters["resume"]
    enrol_totp(signed_in, signed_in.page.url.replace("/factors", "/factors/totp"))
    page = signed_in.open(f"{CONFIRM}?action=remove_totp&resume={resume}")
    assert f"resume={resume}" in unescape(page.action or "")
