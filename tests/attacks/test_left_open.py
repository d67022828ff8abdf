"""A browser that its person left open, and somebody who knows the password too.

What would take the account over asks for the second factor, where there is one.
"""

from collections.abc import Callable

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso.crypto import passwords
from sso.extensions import db
from sso.models import BrowserSession, Mail, Passkey, User
from tests.attacks.test_under_way import in_between
from tests.conftest import Clock
from tests.store.test_races import at_once
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.authenticator import Authenticator, options_of
from tests.support.factories import PASSWORD
from tests.support.mailbox import Mailbox
from tests.support.second_factors import (
    ACCOUNT,
    FACTORS,
    code_of,
    confirm_by_code,
    enrol_passkey,
    enrol_totp,
    is_signed_in,
    sign_in_by_passkey,
)

pytestmark = pytest.mark.slow

EMAIL = f"{ACCOUNT}/email"
NEW = "another long password"


@pytest.fixture
def secret(browser: Browser, user: User, clock: Clock) -> str:
    """The person's browser, with two factors, left open for a while."""
    browser.sign_in()
    found, _ = enrol_totp(browser)
    clock.move(minutes=16)
    return found


def change_password(browser: Browser, to: str = NEW, old: str = PASSWORD) -> Page:
    """Past the page: the form is posted whether the page shows it or not."""
    fields = browser.open(ACCOUNT).fields
    fields |= {"action": "change_password", "old_password": old, "new_password": to}
    return browser.open(ACCOUNT, method="POST", data=fields)


def change_email(browser: Browser, password: str = PASSWORD) -> Page:
    token = browser.open(ACCOUNT).fields["csrf_token"]
    form = {"csrf_token": token, "email": "thief@evil.example", "password": password}
    return browser.open(EMAIL, method="POST", data=form)


def owed(app: Flask, kind: str) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).where(Mail.kind == kind)) or 0


@pytest.mark.parametrize("change", [change_password, change_email])
def test_the_password_is_not_enough(
    app: Flask, browser: Browser, secret: str, change: Callable[[Browser], Page]
) -> None:
    assert change(browser).path.endswith("/second-factor")
    assert browser.submit(code="000000").path.endswith("/second-factor")
    assert change(browser).path.endswith("/second-factor")
    assert owed(app, "change_email") == 0
    assert Browser(app).sign_in(password=PASSWORD).path.endswith("/second-factor")


def test_the_factor_is_not_enough_either(app: Flask, browser: Browser, secret: str) -> None:
    change_password(browser)
    browser.submit(code=code_of(secret))
    change_password(browser, old="not the password")
    assert Browser(app).sign_in(password=PASSWORD).path.endswith("/second-factor")


@pytest.mark.parametrize(
    ("url", "button", "back"),
    [(ACCOUNT, "?back=password", "/account"), (EMAIL, "?back=email", "/account/email")],
)
def test_the_page_leads_to_the_factor_and_back(
    browser: Browser, secret: str, url: str, button: str, back: str
) -> None:
    page = browser.open(url)
    assert 'name="old_password"' not in page.html
    assert 'name="password"' not in page.html
    assert f'href="{BASE}/second-factor{button}"' in page.html
    assert browser.open(f"{BASE}/second-factor{button}").path.endswith("/second-factor")
    page = browser.submit(code=code_of(secret))
    assert page.path.endswith(back)
    assert 'type="password"' in page.html


@pytest.mark.parametrize(("minutes", "asked"), [(14, False), (16, True)])
def test_a_factor_counts_for_fifteen_minutes(
    app: Flask, browser: Browser, secret: str, clock: Clock, minutes: int, asked: bool
) -> None:
    browser.open(f"{BASE}/second-factor?back=password")
    browser.submit(code=code_of(secret))
    clock.move(minutes=minutes)
    assert change_password(browser).path.endswith("/second-factor") is asked
    fresh = Browser(app).sign_in(password=NEW)
    assert fresh.path.endswith("/sign-in") is asked


def test_the_session_goes_on_under_a_new_identifier(
    app: Flask, browser: Browser, secret: str
) -> None:
    with app.app_context():
        before = db.session.scalars(select(BrowserSession.digest)).one()
    browser.open(f"{BASE}/second-factor?back=password")
    browser.submit(code=code_of(secret))
    with app.app_context():
        assert db.session.scalars(select(BrowserSession.digest)).one() != before


def test_cancelling_leads_back_to_the_account(browser: Browser, secret: str) -> None:
    browser.open(f"{BASE}/second-factor?back=password")
    assert browser.submit(decision="cancel").path.endswith("/account")
    assert change_password(browser).path.endswith("/second-factor")


@pytest.mark.parametrize("back", ["https://evil.example", "nowhere", "", "sign_out"])
def test_it_leads_back_to_pages_of_ours_alone(browser: Browser, secret: str, back: str) -> None:
    page = browser.open(f"{ORIGIN}{BASE}/second-factor?back={back}")
    assert page.path.endswith("/account")


def test_without_factors_the_password_is_enough(app: Flask, browser: Browser, user: User) -> None:
    browser.sign_in()
    assert change_email(browser).path.endswith("/account/email")
    assert owed(app, "change_email") == 1
    assert change_password(browser).path.endswith("/account")
    assert Browser(app).sign_in(password=NEW).path.endswith("/account")
    browser.open(f"{BASE}/second-factor?back=password")
    assert browser.page.path.endswith("/account")


def test_a_session_of_the_version_before(app: Flask, browser: Browser, secret: str) -> None:
    """It showed two factors, and nobody knows when."""
    with app.app_context():
        db.session.execute(update(BrowserSession).values(second_factor_at=None))
        db.session.commit()
    assert change_password(browser).path.endswith("/second-factor")


def test_a_passkey_alone_is_a_factor(
    make_app: Callable[..., Flask], user: User, clock: Clock
) -> None:
    app, key = make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}"), Authenticator()
    browser = Browser(app)
    browser.sign_in()
    enrol_passkey(browser, key)
    other = Browser(app)
    other.open(f"{ORIGIN}{BASE}/sign-in")
    sign_in_by_passkey(other, key)
    assert change_password(other).path.endswith("/account")
    clock.move(minutes=16)
    page = change_email(other)
    assert page.path.endswith("/second-factor")
    other.submit(credential=key.get(options_of(page), handle=""))
    assert change_email(other, NEW).path.endswith("/account/email")
    assert owed(app, "change_email") == 1


def test_adding_another_asks_for_the_first(browser: Browser, secret: str) -> None:
    """Even in a session that is fresh, if it did not show the factor."""
    browser.open(f"{ORIGIN}{BASE}/sign-in?back=factors")
    browser.submit(password=PASSWORD)
    assert browser.page.path.endswith("/second-factor")
    page = browser.open(FACTORS)
    assert "Confirm it's you" in page.html
    for action in ("add_passkey", "remove_totp", "new_codes"):
        form = {"csrf_token": browser.open(ACCOUNT).fields["csrf_token"], "action": action}
        assert browser.open(FACTORS, method="POST", data=form).path.endswith("/sign-in")


def test_a_reset_by_mail_leaves_the_factor(
    app: Flask, browser: Browser, user: User, clock: Clock, mailbox: Mailbox
) -> None:
    """Who has the mailbox sets a password, and still stands before the second factor."""
    from tests.attacks.conftest import reset_link

    browser.sign_in()
    confirm_by_code(browser, mailbox)
    secret, _ = enrol_totp(browser)
    clock.move(minutes=5)
    mailbox.read()
    thief = Browser(app)
    thief.open(reset_link(app, user.email, mailbox))
    thief.submit(new_password=NEW)
    assert thief.sign_in(password=NEW).path.endswith("/second-factor")
    assert not is_signed_in(thief)
    assert not is_signed_in(browser)
    thief.sign_in(password=NEW)
    assert thief.submit(code=code_of(secret)).path.endswith("/account")


@pytest.mark.parametrize("change", [change_password, change_email])
def test_a_change_under_way_while_the_owner_enrols(
    app: Flask,
    user: User,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Browser], Page],
) -> None:
    """It saw no factor when it began, and the password was right."""
    owner, thief = Browser(app), Browser(app)
    owner.sign_in()
    thief.sign_in()
    thief.open(ACCOUNT)
    enrol = lambda: enrol_totp(owner)  # noqa: E731
    other = in_between(monkeypatch, passwords, "verify", enrol, after=True, seconds=60)
    change(thief)
    other.join()
    assert not is_signed_in(thief)
    assert is_signed_in(owner)
    assert owed(app, "change_email") == 0
    assert Browser(app).sign_in(password=PASSWORD).path.endswith("/second-factor")


def test_the_last_two_passkeys_at_the_same_instant(
    make_app: Callable[..., Flask], user: User
) -> None:
    """Somebody without a password keeps a way to sign in."""
    app = make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}")
    browser = Browser(app)
    browser.sign_in()
    keys = [Authenticator(), Authenticator()]
    for key in keys:
        enrol_passkey(browser, key)
    page = browser.open(FACTORS)
    with app.app_context():
        ids = [str(one) for one in db.session.scalars(select(Passkey.id))]
        db.session.execute(update(User).values(password_hash=None))
        db.session.commit()
    assert browser.http._cookies is not None
    cookies = {c.key: c.value for c in browser.http._cookies.values()}

    def remove() -> int:
        http = app.test_client()
        for name, value in cookies.items():
            http.set_cookie(name, value, domain="127.0.0.1", path=BASE)
        form = {**page.fields, "action": "remove_passkey", "passkey": ids.pop()}
        return http.post(f"{BASE}/account/factors", data=form, base_url=ORIGIN).status_code

    assert sorted(at_once(2, remove)) == [200, 303]
    with app.app_context():
        assert db.session.scalar(select(func.count()).select_from(Passkey)) == 1
