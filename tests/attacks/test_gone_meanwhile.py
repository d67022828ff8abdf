"""The account, or the session, ends while a password is being checked or hashed."""

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select, update

from sso import clock
from sso.crypto import passwords
from sso.extensions import db
from sso.mfa import policy
from sso.models import BrowserSession, Mail, User
from sso.ratelimit import limiting
from sso.store import sessions, users
from tests.conftest import Clock
from tests.support.actors import BASE, Browser
from tests.support.factories import PASSWORD
from tests.support.second_factors import ACCOUNT, code_of, enrol_totp, is_signed_in

CHANGE = {
    "action": "change_password",
    "old_password": PASSWORD,
    "new_password": "another long password",
}


def end_session(user: User) -> None:
    assert sessions.end()


def delete_user(user: User) -> None:
    users.remove(user)


@pytest.fixture
def meanwhile(app: Flask, user: User, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let it happen at the end of some work on a password."""

    def at_the_end_of(name: str, happens: Callable[[User], None]) -> None:
        work = getattr(passwords, name)

        def and_then(*given: Any) -> Any:
            found = work(*given)
            with app.app_context():
                happens(user)
                db.session.commit()
            return found

        monkeypatch.setattr(passwords, name, and_then)

    return at_the_end_of


@pytest.mark.parametrize("work", ["verify", "hash_password"])
@pytest.mark.parametrize("happens", [end_session, delete_user])
def test_a_password_is_being_changed(
    app: Flask, user: User, meanwhile: Any, work: str, happens: Any
) -> None:
    browser = Browser(app)
    browser.sign_in()
    browser.open(ACCOUNT)
    meanwhile(work, happens)
    page = browser.submit(**CHANGE)
    assert (page.status, page.path) == (200, f"{BASE}/sign-in")
    with app.app_context():
        found = users.find_by_email(user.email)
        assert found is None or found.password_hash == user.password_hash


def test_somebody_signs_in(app: Flask, user: User, meanwhile: Any) -> None:
    meanwhile("verify", delete_user)
    page = Browser(app).sign_in()
    assert (page.status, page.path) == (200, f"{BASE}/sign-in")


@pytest.mark.parametrize("happens", [end_session, delete_user])
def test_an_address_is_being_changed(app: Flask, user: User, meanwhile: Any, happens: Any) -> None:
    browser = Browser(app)
    browser.sign_in()
    browser.open(f"{ACCOUNT}/email")
    meanwhile("verify", happens)
    page = browser.submit(action="change", email="new@example.com", password=PASSWORD)
    assert (page.status, page.path) == (200, f"{BASE}/sign-in")
    with app.app_context():
        assert not db.session.scalars(select(Mail).filter_by(kind="change_email")).all()


def change_password(app: Flask) -> None:
    db.session.execute(update(User).values(password_hash="another"))


def disable(app: Flask) -> None:
    db.session.execute(update(User).values(disabled_at=clock.now()))


def end(app: Flask) -> None:
    db.session.execute(update(BrowserSession).values(ended_at=clock.now()))


def renew(app: Flask) -> None:
    db.session.execute(update(BrowserSession).values(digest="of a new secret"))


def nothing(app: Flask) -> None:
    pass


@pytest.mark.parametrize("happens", [change_password, disable, end, renew, nothing])
def test_the_lock_before_a_change_looks_at_each(
    app: Flask, user: User, happens: Callable[[Flask], None]
) -> None:
    """By itself, without all that a new password ends beside."""
    Browser(app).sign_in()
    with app.app_context():
        session = db.session.scalars(select(BrowserSession)).one()
        current = sessions.find_live(session.digest)
        assert current
        db.session.commit()
        with app.app_context():
            happens(app)
            db.session.commit()
        assert (policy.lock(current) is None) == (happens is not nothing)


@pytest.mark.parametrize("happens", [change_password, disable, nothing])
def test_a_second_factor_is_being_shown(
    app: Flask,
    user: User,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[Flask], None],
) -> None:
    """Between the look at who is half-way in and the lock."""
    setting_up = Browser(app)
    setting_up.sign_in()
    secret, _ = enrol_totp(setting_up)
    clock.move(seconds=60)
    browser = Browser(app)
    browser.sign_in()
    ask = limiting.ask

    def and_then(*given: Any) -> Any:
        with app.app_context():
            happens(app)
            db.session.commit()
        return ask(*given)

    monkeypatch.setattr(limiting, "ask", and_then)
    browser.submit(code=code_of(secret))
    assert is_signed_in(browser) == (happens is nothing)
