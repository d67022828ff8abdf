"""A user or a client that is disabled in the database, whatever else is still there.

The commands end sessions and grants as well; each place that reads looks by itself, too.
"""

from collections.abc import Callable

import pytest
from flask import Flask
from sqlalchemy import update

from sso import clock
from sso.crypto import passwords
from sso.extensions import db
from sso.models import Client, User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client
from tests.support.mailbox import Mailbox
from tests.support.second_factors import code_of, enrol_totp

SCOPE = "openid email offline_access"


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, scope=SCOPE)


Disabled = type[User] | type[Client]


@pytest.fixture(params=["disabled_at", "ends_at"], autouse=True)
def column(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users are disabled, or their accounts have ended and no worker has disabled them."""
    monkeypatch.setitem(COLUMNS, User, request.param)


COLUMNS: dict[Disabled, str] = {Client: "disabled_at"}


def disable(app: Flask, what: Disabled) -> None:
    with app.app_context():
        db.session.execute(update(what).values({COLUMNS[what]: clock.now()}))
        db.session.commit()


def enable(app: Flask, what: Disabled) -> None:
    with app.app_context():
        db.session.execute(update(what).values({COLUMNS[what]: None}))
        db.session.commit()


@pytest.mark.parametrize("what", [User, Client])
def test_tokens(
    app: Flask, browser: Browser, client: RelyingParty, user: User, what: Disabled
) -> None:
    tokens = client.exchange(browser.approve(client, scope=SCOPE).code).get_json()
    code = browser.authorize(client, scope=SCOPE).code
    revoked = client.refresh(tokens["refresh_token"]).get_json()
    attempts: dict[str, Callable[[], int]] = {
        "userinfo": lambda: client.userinfo(tokens["access_token"]).status_code,
        "a code": lambda: client.exchange(code).status_code,
        "a retry": lambda: client.refresh(tokens["refresh_token"]).status_code,
        "refresh": lambda: client.refresh(revoked["refresh_token"]).status_code,
    }
    disable(app, what)
    for name, attempt in attempts.items():
        assert attempt() in (400, 401), name
    for kind in ("access_token", "refresh_token"):
        answer = client.introspect(revoked[kind])
        assert answer.status_code == 401 or answer.get_json() == {"active": False}
    assert client.revoke(revoked["access_token"]).status_code == (200 if what is User else 401)
    enable(app, what)
    for name, attempt in attempts.items():
        assert attempt() == 200, name  # it was the disabling, and nothing else


@pytest.mark.parametrize(
    "path", ["account", "account/email", "account/factors", "account/activity"]
)
def test_pages_of_a_disabled_user(app: Flask, browser: Browser, user: User, path: str) -> None:
    browser.sign_in()
    assert browser.open(f"{ORIGIN}{BASE}/{path}").path.endswith(path)
    disable(app, User)
    assert browser.open(f"{ORIGIN}{BASE}/{path}").path.endswith("/sign-in")
    enable(app, User)
    assert browser.open(f"{ORIGIN}{BASE}/{path}").path.endswith(path)


def test_authorization(app: Flask, browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client, scope=SCOPE)
    disable(app, User)
    assert browser.authorize(client, scope=SCOPE, prompt="none").error == "login_required"
    assert "password" in browser.authorize(client, scope=SCOPE).fields
    enable(app, User)
    assert browser.authorize(client, scope=SCOPE, prompt="none").code
    disable(app, Client)
    page = browser.authorize(client, scope=SCOPE, prompt="none")
    assert page.is_at_server
    assert page.status == 400


def test_signing_in(app: Flask, browser: Browser, user: User) -> None:
    disable(app, User)
    assert browser.sign_in().path.endswith("/sign-in")
    enable(app, User)
    assert browser.sign_in().path.endswith("/account")


def test_half_way(app: Flask, browser: Browser, user: User, clock: object) -> None:
    browser.sign_in()
    secret, codes = enrol_totp(browser)
    half = Browser(app)
    assert half.sign_in().path.endswith("/second-factor")
    page = half.page
    disable(app, User)
    assert half.open(f"{ORIGIN}{BASE}/second-factor").path.endswith("/sign-in")
    half.page = page
    assert half.submit(recovery_code=codes[0]).path.endswith("/sign-in")
    enable(app, User)
    half.page = page
    half.submit(code=code_of(secret, 1))
    assert half.open(f"{ORIGIN}{BASE}/account").path.endswith("/account")


def test_a_mailed_link(app: Flask, browser: Browser, user: User, mailbox: Mailbox) -> None:
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email=user.email)
    link = mailbox.link(user.email)
    form = browser.open(link)
    disable(app, User)
    assert Browser(app).open(link).status == 410
    browser.page = form
    assert browser.submit(new_password="another long password").status == 410
    enable(app, User)
    browser.open(link)
    assert browser.submit(new_password="another long password").path.endswith("/sign-in")


@pytest.mark.parametrize("again", [False, True])
def test_while_the_password_is_checked(
    app: Flask, browser: Browser, user: User, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """No session is begun, which would be good when the user is enabled again."""
    real = passwords.verify

    def verify(*given: str) -> bool:
        found = real(*given)
        disable(app, User)
        return found

    browser.open(f"{ORIGIN}{BASE}/sign-in")
    if not again:
        monkeypatch.setattr(passwords, "verify", verify)
    browser.sign_in()
    enable(app, User)
    assert browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/account") is again
