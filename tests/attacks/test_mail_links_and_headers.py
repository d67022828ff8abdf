"""The attacker wants mails from here to say what they like, or to lead where they like.

It ends at links made from the base address alone, at headers that take no line ends, and at mails
without a word that a stranger typed.
"""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from flask import Flask

from sso.extensions import db
from sso.models import User
from sso.services import notifications
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.mailbox import Mailbox, link_in, text_of

INJECTED = "Dana\r\nBcc: victim@example.com\r\n\r\n<a href='https://evil.example'>"


@pytest.mark.parametrize("proxies", ["0", "1"])
def test_the_host_header(
    make_app: Callable[..., Flask], user: User, mailbox: Mailbox, proxies: str
) -> None:
    app = make_app(SSO_TRUSTED_PROXIES=proxies, SSO_SMTP_URL=mailbox.server.url)
    lying = {
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "https",
        "Forwarded": "host=evil.example",
    }
    browser, address = Browser(app), f"{BASE}/forgotten-password"
    page = browser.http.get(address, base_url="http://evil.example", headers=lying)
    csrf_token, *_ = re.findall('name="csrf_token"[^>]* value="([^"]+)"', page.text)
    answer = browser.http.post(
        address,
        data={"csrf_token": csrf_token, "email": user.email},
        base_url="http://evil.example",
        headers=lying,
    )
    assert answer.status_code == 303
    (mail,) = mailbox.read()
    assert link_in(mail).startswith(f"{ORIGIN}{BASE}/new-password?token=")
    assert "evil" not in mail.as_string()


def test_the_name_is_no_header(app: Flask, user: User, mailbox: Mailbox) -> None:
    with app.app_context():
        db.session.get_one(User, user.id).name = INJECTED
        db.session.commit()
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email=user.email)
    (mail,) = mailbox.read()
    assert mail["Bcc"] is None
    assert mail["X-Envelope"].endswith(" dana@example.com")
    assert len(mail["To"].addresses) == 1
    assert mail["To"].addresses[0].addr_spec == "dana@example.com"
    assert "<a href='https://evil" not in text_of(mail, "html")


@pytest.mark.parametrize("browser_name", ["Evil\r\nBcc: x@example.com", "<b>{host}</b> %s {0}"])
def test_the_browser_is_no_header_and_no_markup(
    app: Flask, user: User, mailbox: Mailbox, browser_name: str
) -> None:
    from sso.clock import now
    from sso.models import BrowserSession
    from sso.services import notifications

    with app.app_context():
        session = BrowserSession(browser=browser_name, address="192.0.2.1", auth_time=now())
        notifications.new_browser(db.session.get_one(User, user.id), session)
        db.session.commit()
    (mail,) = mailbox.read()
    assert mail["Bcc"] is None
    assert "<b>" not in text_of(mail, "html")
    assert "192.0.2.1" in text_of(mail)


def test_strangers_put_no_words_into_a_mail(app: Flask, mailbox: Mailbox) -> None:
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, sign_up="open")
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-up")
    browser.submit(email="victim@example.com", name="You won https://evil.example")
    (mail,) = mailbox.read()
    assert "evil" not in mail.as_string()
    assert "Hello" not in text_of(mail)


LINES = "Phone\r\n\r\nYour account ends.\u2028\u202eSee\x1b[2J\thttps://evil.example/ " + "x" * 300


def test_no_name_begins_a_line(app: Flask, user: User, mailbox: Mailbox) -> None:
    """Of a user, a factor, a provider or an account there: it is one line, and not a long one."""
    with app.app_context():
        person = db.session.get_one(User, user.id)
        person.name = LINES[:200]  # what the column holds
        notifications.factor_added(person, LINES)
        notifications.factor_removed(person, LINES)
        notifications.identity_added(person, LINES, LINES)
        notifications.identity_removed(person, LINES, LINES)
        db.session.commit()
    mails = mailbox.read()
    assert len(mails) == 4
    for mail in mails:
        for text in (text_of(mail), text_of(mail, "html"), mail["Subject"], mail["To"]):
            lines = [line.strip() for line in text.splitlines()]
            assert not [line for line in lines if line.startswith("Your account ends")]
            assert not set(text) & set("\t\u2028\u202e\x1b")
            assert "x" * 200 not in text
        assert "Hello Phone Your account ends. See [2J https://evil.example/ xx" in text_of(mail)
