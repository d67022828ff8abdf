"""The attacker plants a session identifier and waits for the victim to sign in with it.

It ends at a new identifier for each sign-in; the database holds digests alone.
"""

from flask import Flask
from sqlalchemy import select

from sso.extensions import db
from sso.models import AuthorizationCode, BrowserSession, Client, Token, User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty


def cookie(browser: Browser) -> str:
    found = browser.http.get_cookie("sso_browser", path=BASE, domain="127.0.0.1")
    assert found is not None
    return found.value


def test_signing_in_again_changes_the_identifier(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.approve(client)
    old = cookie(browser)
    browser.authorize(client, prompt="login")
    browser.sign_in()
    assert cookie(browser) != old
    attacker = Browser(app)
    attacker.http.set_cookie("sso_browser", old, path=BASE, domain="127.0.0.1")
    assert attacker.open(f"{ORIGIN}{BASE}/account").path.endswith("/sign-in")


def test_no_secret_is_stored_in_clear(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    code = browser.approve(client).code
    tokens = client.exchange(code).get_json()
    with app.app_context():
        rows = [
            repr(vars(row))
            for table in (AuthorizationCode, Token, BrowserSession, Client, User)
            for row in db.session.scalars(select(table))
        ]
    secrets = [code, tokens["refresh_token"], tokens["access_token"], client.client_secret]
    for secret in (*secrets, cookie(browser), "correct horse battery"):
        assert not any(secret in row for row in rows)


def test_the_cookie(browser: Browser, user: User) -> None:
    browser.sign_in()
    headers = browser.history[-2].headers.getlist("Set-Cookie")
    (header,) = [one for one in headers if one.startswith("sso_browser=")]
    for part in ("HttpOnly", "SameSite=Lax", f"Path={BASE}"):
        assert part in header
