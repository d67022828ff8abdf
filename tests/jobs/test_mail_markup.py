"""What people choose is text in a mail: no markup, no link of their own, no header."""

import pytest
from flask import Flask

from sso.extensions import db
from sso.services import notifications
from sso.store import users
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox, text_of
from tests.support.second_factors import confirm_by_code, enrol_totp

MARKUP = '<a href="https://evil.example">press</a> & <b>bold</b>'


@pytest.fixture
def browser(app: Flask, mailbox: Mailbox) -> Browser:
    make_user(app, name=MARKUP)
    browser = Browser(app)
    browser.http.environ_base["HTTP_USER_AGENT"] = f"Mozilla/5.0 {MARKUP}"
    browser.sign_in()
    return browser


def check(mailbox: Mailbox, at_least: int) -> None:
    mails = mailbox.read()
    assert len(mails) >= at_least
    greeted = 0
    for mail in mails:
        html = text_of(mail, "html")
        assert "<b>" not in html
        assert 'href="https://evil.example' not in html
        assert "https://evil.example" not in str(mail["Subject"])
        if "&lt;b&gt;bold" in html:
            assert "&amp;" in html
            greeted += 1
            # Text is no HTML: nothing is escaped there.
            assert "<b>bold</b>" in " ".join(text_of(mail).split())
    assert greeted


def test_a_name_and_a_browser(browser: Browser, mailbox: Mailbox) -> None:
    check(mailbox, 1)


def test_the_name_in_a_reset(browser: Browser, mailbox: Mailbox) -> None:
    mailbox.read()
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email="dana@example.com")
    check(mailbox, 1)


def test_the_name_when_something_changed(browser: Browser, mailbox: Mailbox) -> None:
    confirm_by_code(browser, mailbox)
    enrol_totp(browser)
    browser.open(f"{ORIGIN}{BASE}/account")
    browser.submit(
        action="change_password", old_password=PASSWORD, new_password="another long password"
    )
    check(mailbox, 2)


def test_the_name_of_a_factor(app: Flask, browser: Browser, mailbox: Mailbox) -> None:
    mailbox.read()
    with app.app_context():
        user = users.find_by_email("dana@example.com")
        assert user
        user.name = "Dana"
        notifications.factor_added(user, MARKUP)
        db.session.commit()
    check(mailbox, 1)


def test_pages_escape_it_too(browser: Browser) -> None:
    for path in ("account", "account/email", "account/factors", "account/activity", "sign-out"):
        html = browser.open(f"{ORIGIN}{BASE}/{path}").html
        assert "<b>bold" not in html
        assert 'href="https://evil.example' not in html
    assert "&lt;b&gt;bold" in browser.open(f"{ORIGIN}{BASE}/account").html
