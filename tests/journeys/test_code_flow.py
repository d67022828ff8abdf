"""The six steps of a sign-in, from the browser's redirect to the user's profile."""

from flask import Flask

from sso.models import User
from tests.support.actors import ISSUER, Browser, RelyingParty, claims_of, header_of, pkce


def test_the_code_flow_gives_the_profile(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    verifier, challenge = pkce()
    page = browser.authorize(
        client, code_challenge=challenge, code_challenge_method="S256", nonce="n0nce"
    )
    assert page.path.endswith("/sign-in")
    page = browser.sign_in(user.email)
    assert page.path.endswith("/consent")
    assert "Books" in page.html
    page = browser.allow()
    assert page.url.startswith("https://books.example/callback?")
    assert set(page.parameters) == {"code", "state", "iss"}
    assert page.parameters["state"] == "st4te"
    assert page.parameters["iss"] == ISSUER

    answer = client.exchange(page.code, code_verifier=verifier)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    tokens = answer.get_json()
    assert set(tokens) == {
        "access_token", "token_type", "expires_in", "refresh_token", "id_token", "scope",
    }  # fmt: skip
    assert tokens["token_type"] == "Bearer"
    assert tokens["expires_in"] == 3600
    assert header_of(tokens["access_token"])["typ"] == "at+jwt"
    identity = claims_of(tokens["id_token"])
    assert set(identity) == {
        "iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "sid", "amr",
    }  # fmt: skip
    assert (identity["sub"], identity["nonce"]) == (str(user.id), "n0nce")

    profile = client.userinfo(tokens["access_token"])
    assert profile.status_code == 200
    wanted = {"id": str(user.id), "name": "Dana Demo", "email": user.email, "emailVerified": True}
    assert wanted.items() <= profile.get_json().items()


def test_a_refresh_gives_a_successor(browser: Browser, client: RelyingParty, user: User) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    answer = client.refresh(tokens["refresh_token"])
    assert answer.status_code == 200, answer.text
    renewed = answer.get_json()
    assert renewed["refresh_token"] != tokens["refresh_token"]
    assert client.userinfo(renewed["access_token"]).status_code == 200
    before, after = claims_of(tokens["id_token"]), claims_of(renewed["id_token"])
    for claim in ("iss", "sub", "aud", "auth_time", "sid"):
        assert before[claim] == after[claim]
    assert "nonce" not in after


def test_consent_is_remembered(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client)
    page = browser.authorize(client)
    assert "code" in page.parameters


def test_refusing_is_access_denied(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.authorize(client)
    browser.sign_in()
    page = browser.deny()
    assert page.parameters == {
        "error": "access_denied",
        "error_description": "The user refused.",
        "state": "st4te",
        "iss": ISSUER,
    }


def test_a_sign_in_page_of_another_tab_leads_on(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Signing in gives the browser a new session; the page in the other tab is older than that."""
    other_tab = browser.authorize(client)
    browser.approve(client)
    browser.page = other_tab
    page = browser.sign_in()
    assert "code" in page.parameters


def test_without_cookies_the_page_says_what_to_do(
    app: Flask, client: RelyingParty, user: User
) -> None:
    browser = Browser(app)
    browser.http = app.test_client(use_cookies=False)
    browser.authorize(client)
    page = browser.sign_in()
    assert page.status == 400
    assert "cookies" in page.html
