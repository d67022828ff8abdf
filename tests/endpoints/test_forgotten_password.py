"""The way back in for somebody who has forgotten the password."""

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox

FORGOTTEN = f"{ORIGIN}{BASE}/forgotten-password"
NEW = "another long password"


def ask(browser: Browser, email: str) -> None:
    browser.open(FORGOTTEN)
    page = browser.submit(email=email)
    assert "If this address has an account" in page.html


def test_the_whole_way(app: Flask, client: RelyingParty, user: User, mailbox: Mailbox) -> None:
    elsewhere = Browser(app)
    tokens = client.exchange(elsewhere.approve(client).code).get_json()
    mailbox.read()

    browser = Browser(app)
    page = browser.authorize(client)
    assert "forgotten-password?resume=" in page.html
    browser.open(page.url.replace("/sign-in", "/forgotten-password"))
    browser.submit(email="Dana@Example.com ")
    link = mailbox.link(user.email)

    page = browser.open(link)
    assert user.email in page.html
    assert "12 characters" in browser.submit(new_password="short").html
    page = browser.submit(new_password=NEW)
    assert page.path.endswith("/sign-in")
    assert "Your password was set" in page.html
    assert page.fields["email"] == user.email
    assert mailbox.subjects() == [(user.email, "Your password was changed")]

    # Everything before has ended, and the application's request goes on where it was.
    assert elsewhere.open(f"{ORIGIN}{BASE}/account").path.endswith("/sign-in")
    assert client.userinfo(tokens["access_token"]).status_code == 401
    assert client.exchange(browser.sign_in(password=NEW).code).status_code == 200
    assert mailbox.read() == []  # this browser has proven itself
    assert Browser(app).sign_in(password=PASSWORD).path.endswith("/sign-in")


@pytest.mark.parametrize("email", ["erin@corp.test", "erin@nas.home.arpa", "erin@localhost"])
def test_an_address_in_the_operators_own_network(
    app: Flask, browser: Browser, mailbox: Mailbox, email: str
) -> None:
    make_user(app, email, name="Erin", email_verified=False)
    assert mailbox.subjects() == [(email, "Please confirm your email address")]
    assert browser.sign_in(email.upper()).path.endswith("/account")
    mailbox.read()  # about the new browser
    ask(Browser(app), email)
    browser = Browser(app)
    browser.open(mailbox.link(email))
    browser.submit(new_password=NEW)
    assert browser.sign_in(email, NEW).path.endswith("/account")


@pytest.mark.parametrize(("email", "sent"), [("erin@no.invalid", False), ("erin@notinvalid", True)])
def test_nobody_lives_in_invalid(app: Flask, mailbox: Mailbox, email: str, sent: bool) -> None:
    make_user(app, email, name="Erin", email_verified=False)
    assert bool(mailbox.read()) is sent


def test_no_mail_for_the_unknown_and_the_disabled(app: Flask, mailbox: Mailbox) -> None:
    make_user(app, "off@example.com")
    app.test_cli_runner().invoke(args=["user", "disable", "off@example.com"])
    for email in ("nobody@example.com", "off@example.com"):
        ask(Browser(app), email)
    assert mailbox.read() == []


def test_the_link_lives_an_hour(
    clock: Clock, app: Flask, browser: Browser, user: User, mailbox: Mailbox
) -> None:
    ask(browser, user.email)
    clock.move(hours=5)  # the worker was away
    link = mailbox.link(user.email)
    clock.move(minutes=59)
    assert browser.open(link).status == 200
    clock.move(minutes=2)
    page = browser.open(link)
    assert page.status == 410
    assert "/forgotten-password" in page.html


def test_a_user_without_a_password_gets_one(app: Flask, mailbox: Mailbox) -> None:
    make_user(app, "new@example.com", password=None)
    browser = Browser(app)
    ask(browser, "new@example.com")
    browser.open(mailbox.link("new@example.com"))
    browser.submit(new_password=NEW)
    assert browser.sign_in("new@example.com", NEW).path.endswith("/account")


@pytest.mark.parametrize("email", ["", "dana", "a@b\r\nBcc: c@d.example", "a\0@example.com"])
def test_what_is_no_address(browser: Browser, mailbox: Mailbox, email: str) -> None:
    browser.open(FORGOTTEN)
    page = browser.submit(email=email)
    assert 'aria-invalid="true"' in page.html
    assert mailbox.read() == []
