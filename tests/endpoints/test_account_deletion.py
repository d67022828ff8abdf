"""A user deletes the own account, where the operator allows it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select, update

from sso import audit
from sso.crypto import passwords
from sso.extensions import db
from sso.models import Mail, User
from sso.services import accounts
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.authenticator import Authenticator
from tests.support.events import events
from tests.support.factories import PASSWORD, make_client, make_user
from tests.support.mailbox import Mailbox
from tests.support.second_factors import (
    code_of,
    enrol_passkey,
    enrol_totp,
    is_signed_in,
    sign_in_by_passkey,
)

pytestmark = pytest.mark.slow

DELETE = f"{ORIGIN}{BASE}/account/delete"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_ACCOUNT_DELETION="on", SSO_BASE_URL=f"http://localhost:5000{BASE}")


@pytest.fixture
def dana(browser: Browser, user: User, clock: Clock) -> Browser:
    browser.sign_in()
    browser.open(DELETE)
    return browser


def exists(app: Flask, email: str = "dana@example.com") -> bool:
    with app.app_context():
        return db.session.scalar(select(User).where(User.email == email)) is not None


def test_it_says_what_ends_and_ends_it(app: Flask, dana: Browser, user: User) -> None:
    client = make_client(app, scope="openid offline_access")
    tokens = client.exchange(dana.approve(client, scope="openid offline_access").code).get_json()
    elsewhere = Browser(app)
    elsewhere.sign_in()
    assert f'href="{BASE}/account/delete"' in dana.open(f"{ORIGIN}{BASE}/account").html
    page = dana.open(DELETE)
    assert "Access of: Books." in page.html
    assert "on every device: 2." in page.html
    page = dana.submit(password=PASSWORD)
    assert "<h1>Your account was deleted</h1>" in page.html
    assert not exists(app)
    assert not is_signed_in(dana)
    assert not is_signed_in(elsewhere)
    assert client.userinfo(tokens["access_token"]).status_code == 401
    assert client.refresh(tokens["refresh_token"]).status_code == 400
    (event,) = events(app, "user_deleted")
    assert (event["user"], event["what"]) == (str(user.id), "own account")
    assert user.email not in str(event)
    assert len(events(app, "signed_in")) == 2
    assert Browser(app).sign_in().path.endswith("/sign-in")
    assert dana.open(f"{ORIGIN}{BASE}/sign-in").status == 200


def test_a_mail_confirms_it(app: Flask, dana: Browser) -> None:
    dana.submit(password=PASSWORD)
    with app.app_context():
        mail = db.session.scalars(select(Mail).where(Mail.kind == "account_deleted")).one()
        assert (mail.address, mail.user_id) == ("dana@example.com", None)


@pytest.mark.parametrize("password", ["", "wrong", "x" * 300])
def test_the_password_is_asked_for(app: Flask, dana: Browser, password: str) -> None:
    page = dana.submit(password=password)
    assert 'aria-invalid="true"' in page.html
    assert exists(app)
    failed = events(app, "account_deletion_failed")
    assert [one["reason"] for one in failed] == (["password"] if password == "wrong" else [])


def test_guessing_is_limited(app: Flask, dana: Browser) -> None:
    for _ in range(12):
        page = dana.open(DELETE, method="POST", data={**dana.page.fields, "password": "wrong"})
        if page.status == 429:
            break
        dana.open(DELETE)
    assert page.status == 429
    assert exists(app)


def test_the_second_factor_is_asked_for_again(app: Flask, dana: Browser, clock: Clock) -> None:
    secret, _ = enrol_totp(dana)
    clock.move(minutes=16)
    page = dana.open(DELETE)
    assert "password" not in page.fields
    fields = {**dana.open(f"{ORIGIN}{BASE}/account").fields, "password": PASSWORD}
    dana.open(DELETE, method="POST", data=fields)
    assert exists(app)
    dana.open(f"{ORIGIN}{BASE}/second-factor?back=delete")
    assert dana.submit(code=code_of(secret)).path.endswith("/account/delete")
    dana.submit(password=PASSWORD)
    assert not exists(app)


def test_without_a_password_a_passkey_does(app: Flask, dana: Browser, clock: Clock) -> None:
    key = Authenticator()
    enrol_passkey(dana, key)
    with app.app_context():
        db.session.execute(update(User).values(password_hash=None))
        db.session.commit()
    clock.move(minutes=16)
    form = {"csrf_token": dana.open(f"{ORIGIN}{BASE}/account").fields["csrf_token"]}
    dana.open(DELETE, method="POST", data=form)
    assert exists(app)
    dana.open(f"{ORIGIN}{BASE}/sign-in?back=delete")
    assert sign_in_by_passkey(dana, key).path.endswith("/account/delete")
    dana.submit()
    assert not exists(app)


def test_another_person_signs_in_meanwhile(app: Flask, dana: Browser) -> None:
    """In another tab of the same browser: the page that is still open deletes nobody."""
    make_user(app, "erin@example.com", name="Erin")
    left_open = {**dana.page.fields, "password": PASSWORD}
    dana.open(f"{ORIGIN}{BASE}/sign-in")
    dana.sign_in("erin@example.com")
    dana.open(DELETE, method="POST", data=left_open)
    assert exists(app)
    assert exists(app, "erin@example.com")


@pytest.fixture
def deleted_meanwhile(app: Flask, dana: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account is deleted while the next password is checked."""
    verify = passwords.verify

    def meanwhile(*given: Any) -> bool:
        monkeypatch.setattr(passwords, "verify", verify)
        with app.app_context():
            found = db.session.scalars(select(User)).one()
            accounts.delete(audit.USER, found, is_own=True)
            db.session.commit()
        return verify(*given)

    monkeypatch.setattr(passwords, "verify", meanwhile)


@pytest.mark.usefixtures("deleted_meanwhile")
def test_a_sign_in_under_way_ends_in_nothing(app: Flask) -> None:
    elsewhere = Browser(app)
    elsewhere.open(f"{ORIGIN}{BASE}/sign-in")
    page = elsewhere.submit(email="dana@example.com", password=PASSWORD)
    assert not exists(app)
    assert page.path.endswith("/sign-in")
    assert not is_signed_in(elsewhere)


@pytest.mark.usefixtures("deleted_meanwhile")
def test_it_is_deleted_once(app: Flask, dana: Browser) -> None:
    assert dana.submit(password=PASSWORD).path.endswith("/sign-in")
    assert not exists(app)
    assert len(events(app, "user_deleted")) == 1


def test_an_administrator_stays(app: Flask, dana: Browser, user: User) -> None:
    """Also one who becomes it while the page is open."""
    left_open = {**dana.page.fields, "password": PASSWORD}
    group = app.extensions["sso.settings"].admin_group
    result = app.test_cli_runner().invoke(args=["user", "update", user.email, "--add-group", group])
    assert result.exit_code == 0, result.stderr
    assert "another administrator" in dana.open(DELETE, method="POST", data=left_open).html
    assert "password" not in dana.page.fields
    assert exists(app)


def test_nobody_is_there(app: Flask, user: User) -> None:
    assert Browser(app).open(DELETE).path.endswith("/sign-in")
    assert Browser(app).open(f"{DELETE}?done=1").status == 200
    assert exists(app)


def test_it_is_off_unless_the_operator_allows_it(make_app: Callable[..., Flask]) -> None:
    app = make_app()
    make_user(app)
    browser = Browser(app)
    page = browser.sign_in()
    assert "/account/delete" not in page.html
    form = {"csrf_token": page.fields["csrf_token"], "password": PASSWORD}
    assert browser.open(DELETE).status == 404
    assert browser.open(DELETE, method="POST", data=form).status == 404
    assert exists(app)


def test_what_the_mail_says(mailbox: Mailbox) -> None:
    user = make_user(mailbox.app, claims={"locale": "de"})
    settings = mailbox.app.extensions["sso.settings"]
    mailbox.app.extensions["sso.settings"] = replace(settings, account_deletion="on")
    browser = Browser(mailbox.app)
    browser.sign_in()
    mailbox.read()
    browser.open(DELETE)
    browser.submit(password=PASSWORD)
    (mail,) = mailbox.read()
    assert mail["Subject"] == "Ihr Konto wurde gelöscht"
    assert user.email in mail["To"]
