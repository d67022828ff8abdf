"""Making an account oneself, and being invited to one."""

import json
from dataclasses import replace

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty
from tests.support.events import events
from tests.support.mailbox import Mailbox, link_in, text_of

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
    assert "on one line" in browser.submit(name="Nia\nNew", new_password=PASSWORD).html
    browser.submit(name="Nia New", new_password=PASSWORD)
    tokens = client.exchange(browser.allow().code).get_json()
    profile = client.userinfo(tokens["access_token"]).get_json()
    assert (profile["name"], profile["emailVerified"]) == ("Nia New", True)
    assert mailbox.read() == []


def complete(browser: Browser, mailbox: Mailbox) -> Page:
    """Open the mailed link in a browser, and create the account there."""
    browser.open(mailbox.link("new@example.com"))
    return browser.submit(name="Nia New", new_password=PASSWORD)


def ask(app: Flask) -> Browser:
    allow(app, "open")
    browser = Browser(app)
    browser.open(SIGN_UP)
    browser.submit(email="new@example.com")
    return browser


def test_it_ends_signed_in(app: Flask, mailbox: Mailbox) -> None:
    browser = ask(app)
    before = browser.http.get_cookie("sso_browser", "127.0.0.1", BASE)
    assert complete(browser, mailbox).path.endswith("/account")
    after = browser.http.get_cookie("sso_browser", "127.0.0.1", BASE)
    assert before != after
    assert [one["name"] for one in events(app, "signed_up", "signed_in")] == [
        "signed_up",
        "signed_in",
    ]
    assert mailbox.read() == []  # about no new browser


def test_another_browser_is_not_signed_in(app: Flask, user: User, mailbox: Mailbox) -> None:
    """The link may be a stranger's, who wants somebody to work in an account of his."""
    ask(app)
    other = Browser(app)
    page = complete(other, mailbox)
    assert page.path.endswith("/sign-in")
    assert page.fields["email"] == "new@example.com"
    assert "email" not in page.url
    assert other.open(f"{ORIGIN}{BASE}/account").path.endswith("/sign-in")
    assert other.page.fields["email"] == ""
    assert other.sign_in("new@example.com", PASSWORD).path.endswith("/account")


def test_a_browser_that_asked_for_another_address(app: Flask, mailbox: Mailbox) -> None:
    ask(app)
    other = Browser(app)
    other.open(SIGN_UP)
    other.submit(email="other@example.com")
    assert complete(other, mailbox).path.endswith("/sign-in")


def test_somebody_else_is_signed_in(app: Flask, user: User, mailbox: Mailbox) -> None:
    """A link from a stranger leaves the session of its reader as it is."""
    ask(app)
    reader = Browser(app)
    reader.sign_in()
    complete(reader, mailbox)
    assert user.email in reader.open(f"{ORIGIN}{BASE}/account").html


def test_a_known_address_is_told_by_mail_alone(app: Flask, user: User, mailbox: Mailbox) -> None:
    allow(app, "open")
    pages = []
    for email in (user.email, "new@example.com"):
        browser = Browser(app)
        browser.open(SIGN_UP)
        pages.append(browser.submit(email=email).html.partition("</main>")[0])
    assert pages[0] == pages[1]
    assert mailbox.subjects() == [
        ("dana@example.com", "You already have an account"),
        ("new@example.com", "Finish creating your account"),
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
    made = json.loads(done.stdout)
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


@pytest.mark.parametrize(
    "email", ["a@corp.local", "a@home.lan", "a@x.test", "a@nas.home.arpa", "a@localhost"]
)
def test_an_address_that_mail_cannot_reach(
    app: Flask, browser: Browser, mailbox: Mailbox, email: str
) -> None:
    allow(app, "open")
    browser.open(SIGN_UP)
    assert "This address cannot receive email" in browser.submit(email=email).html
    assert mailbox.read() == []
    browser.submit(email="a@local.example")
    assert len(mailbox.read()) == 1


def test_a_private_domain_that_the_operator_offers(
    app: Flask, browser: Browser, mailbox: Mailbox
) -> None:
    allow(app, "corp.local")
    browser.open(SIGN_UP)
    assert "cannot sign up with this address" not in browser.submit(email="a@corp.local").html
    assert len(mailbox.read()) == 1
    browser.open(SIGN_UP)
    assert "cannot receive email" in browser.submit(email="a@home.lan").html
    browser.open(SIGN_UP)
    assert "cannot sign up with this address" in browser.submit(email="a@example.com").html
    assert mailbox.read() == []


@pytest.mark.parametrize(("seconds", "status"), [(7 * 86_400 - 60, 200), (7 * 86_400 + 1, 410)])
def test_how_long_an_invitation_lives(
    app: Flask, browser: Browser, mailbox: Mailbox, clock: Clock, seconds: int, status: int
) -> None:
    arguments = ["user", "invite", "--email", "g@example.com", "--name", "G"]
    assert app.test_cli_runner().invoke(args=arguments).exit_code == 0
    (mail,) = mailbox.read()
    text = text_of(mail)
    assert "The link works once, until November 28, 2026" in text
    assert "hour" not in text
    clock.move(seconds=seconds)
    assert browser.open(link_in(mail)).status == status


def test_other_links_live_for_an_hour(
    app: Flask, browser: Browser, mailbox: Mailbox, clock: Clock, user: User
) -> None:
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email=user.email)
    (mail,) = mailbox.read()
    text = text_of(mail)
    assert "for one hour" in text
    clock.move(seconds=3601)
    assert browser.open(link_in(mail)).status == 410
