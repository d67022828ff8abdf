"""Making an account oneself, and being invited to one."""

import json
from dataclasses import replace

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.models import User
from tests.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.events import events
from tests.mailbox import Mailbox

SIGN_UP = f"{ORIGIN}{BASE}/sign-up"
PASSWORD = "another long password"


def allow(app: Flask, whom: str) -> None:
    app.extensions["sso.settings"] = replace(app.extensions["sso.settings"], sign_up=whom)


def count(app: Flask) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(User)) or 0


def test_it_is_off_by_default(browser: Browser) -> None:
    assert "sign-up" not in browser.open(f"{ORIGIN}{BASE}/sign-in").html
    assert browser.open(SIGN_UP).status == 404


def test_the_whole_way(app: Flask, client: RelyingParty, mailbox: Mailbox) -> None:
    allow(app, "open")
    browser = Browser(app)
    page = browser.authorize(client)
    browser.open(page.url.replace("/sign-in", "/sign-up"))
    browser.submit(email="New@Example.com")
    assert count(app) == 0  # before the link there is no account
    browser.open(mailbox.link("new@example.com"))
    assert "12 characters" in browser.submit(name="Nia New", new_password="short").html
    assert "in one line" in browser.submit(name="Nia\nNew", new_password=PASSWORD).html
    browser.submit(name="Nia New", new_password=PASSWORD)
    browser.sign_in("new@example.com", PASSWORD)
    tokens = client.exchange(browser.allow().code).get_json()
    profile = client.userinfo(tokens["access_token"]).get_json()
    assert (profile["name"], profile["emailVerified"]) == ("Nia New", True)
    assert mailbox.read() == []


def test_a_known_address_is_told_by_mail_alone(app: Flask, user: User, mailbox: Mailbox) -> None:
    allow(app, "open")
    pages = []
    for email in (user.email, "new@example.com"):
        browser = Browser(app)
        browser.open(SIGN_UP)
        pages.append(browser.submit(email=email).html)
    assert pages[0] == pages[1]
    assert mailbox.subjects() == [
        ("dana@example.com", "You have an account already"),
        ("new@example.com", "Finish making your account"),
    ]


@pytest.mark.parametrize(
    ("email", "sent"),
    [
        ("a@example.com", True),
        ("a@EXAMPLE.org", True),
        ("a@sub.example.com", False),
        ("a@notexample.com", False),
        ("a@example.com.evil.example", False),
    ],
)
def test_domains(app: Flask, browser: Browser, mailbox: Mailbox, email: str, sent: bool) -> None:
    allow(app, "example.com example.org")
    assert "example.org" in browser.open(SIGN_UP).html
    browser.submit(email=email)
    assert bool(mailbox.read()) is sent


def test_the_link_works_once(app: Flask, mailbox: Mailbox) -> None:
    allow(app, "open")
    browser, other = Browser(app), Browser(app)
    browser.open(SIGN_UP)
    browser.submit(email="new@example.com")
    link = mailbox.link("new@example.com")
    browser.open(link)
    other.open(link)
    browser.submit(name="New", new_password=PASSWORD)
    assert other.submit(name="Other", new_password=PASSWORD).status == 410
    assert count(app) == 1


def test_two_links_make_one_account(app: Flask, mailbox: Mailbox) -> None:
    allow(app, "open")
    browsers = [Browser(app), Browser(app)]
    for browser in browsers:
        browser.open(SIGN_UP)
        browser.submit(email="new@example.com")
        browser.open(mailbox.link("new@example.com"))
    browsers[0].submit(name="New", new_password=PASSWORD)
    assert browsers[1].submit(name="Other", new_password=PASSWORD).status == 410
    assert count(app) == 1


def test_when_it_is_turned_off_links_are_dead(
    app: Flask, browser: Browser, mailbox: Mailbox
) -> None:
    allow(app, "open")
    browser.open(SIGN_UP)
    browser.submit(email="new@example.com")
    allow(app, "off")
    assert browser.open(mailbox.link("new@example.com")).status == 410


def test_an_invitation(app: Flask, browser: Browser, mailbox: Mailbox) -> None:
    arguments = ["user", "invite", "--email", "Guest@example.com", "--name", "Gus Guest"]
    done = app.test_cli_runner().invoke(args=[*arguments, "--group", "staff", "--json"])
    made = json.loads(done.output)
    assert made["email_verified"] is False
    (told,) = events(app, "user_invited", "user_created")
    assert (told["name"], told["user"]) == ("user_invited", made["id"])
    assert told["operator"]
    page = browser.open(mailbox.link("guest@example.com"))
    assert "guest@example.com" in page.html
    page = browser.submit(new_password=PASSWORD)
    assert browser.sign_in("guest@example.com", PASSWORD).path.endswith("/account")
    assert "staff" in browser.page.html
    assert "not verified" not in browser.page.html
    assert mailbox.read() == []
    again = app.test_cli_runner().invoke(args=arguments)
    assert again.exit_code == 1
    assert "already a user" in again.output
    assert len(events(app, "user_invited")) == 1
