"""Making an account oneself, and being invited to one."""

import json
from dataclasses import replace

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.models import User
from sso.store import users
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty
from tests.support.events import events
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox, link_in, text_of

SIGN_UP = f"{ORIGIN}{BASE}/sign-up"
NEW_PASSWORD = "another long password"


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
    assert "on one line" in browser.submit(name="Nia\nNew", new_password=NEW_PASSWORD).html
    browser.submit(name="Nia New", new_password=NEW_PASSWORD)
    tokens = client.exchange(browser.allow().code).get_json()
    profile = client.userinfo(tokens["access_token"]).get_json()
    assert (profile["name"], profile["emailVerified"]) == ("Nia New", True)
    assert mailbox.read() == []


def complete(browser: Browser, mailbox: Mailbox) -> Page:
    """Open the mailed link in a browser, and create the account there."""
    browser.open(mailbox.link("new@example.com"))
    return browser.submit(name="Nia New", new_password=NEW_PASSWORD)


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
    assert other.sign_in("new@example.com", NEW_PASSWORD).path.endswith("/account")


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
        ("a@ample.com", False),
        ("a@example.co", False),
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
    browser.submit(name="New", new_password=NEW_PASSWORD)
    assert other.submit(name="Other", new_password=NEW_PASSWORD).status == 410
    assert count(app) == 1


def test_two_links_make_one_account(app: Flask, mailbox: Mailbox) -> None:
    allow(app, "open")
    browsers = [Browser(app), Browser(app)]
    for browser in browsers:
        browser.open(SIGN_UP)
        browser.submit(email="new@example.com")
        browser.open(mailbox.link("new@example.com"))
    browsers[0].submit(name="New", new_password=NEW_PASSWORD)
    assert browsers[1].submit(name="Other", new_password=NEW_PASSWORD).status == 410
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
    page = browser.submit(new_password=NEW_PASSWORD)
    assert browser.sign_in("guest@example.com", NEW_PASSWORD).path.endswith("/account")
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


# Addresses are proven by their mail, and change only so.

EMAIL = f"{ORIGIN}{BASE}/account/email"
NEW = "dana@elsewhere.example"


def stored(app: Flask, user: User) -> tuple[str, bool]:
    with app.app_context():
        found = users.find(user.id)
        assert found
        return found.email, found.email_verified


def run(app: Flask, *arguments: str, stdin: str | None = None) -> dict[str, object]:
    done = app.test_cli_runner().invoke(args=[*arguments, "--json"], input=stdin)
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.output)
    return found


def test_a_new_user_confirms(app: Flask, browser: Browser, mailbox: Mailbox) -> None:
    create = ("user", "create", "--email", "new@example.com", "--name", "New", "--password-stdin")
    assert run(app, *create, stdin=PASSWORD + "\n")["email_verified"] is False
    page = browser.open(mailbox.link("new@example.com"))
    assert "new@example.com" in page.html
    page = browser.submit()
    assert "is confirmed" in page.html
    assert run(app, "user", "show", "new@example.com")["email_verified"] is True
    assert mailbox.read() == []


def test_who_is_known_to_be_right_is_not_asked(app: Flask, user: User, mailbox: Mailbox) -> None:
    run(app, "user", "update", user.email, "--email", NEW, "--email-verified")
    assert mailbox.subjects() == [("dana@example.com", "Your email address was changed")]
    run(app, "user", "update", NEW, "--email", "again@example.com")
    assert ("again@example.com", "Please confirm your email address") in mailbox.subjects()


def test_the_link_dies_with_the_address(app: Flask, browser: Browser, mailbox: Mailbox) -> None:
    user = make_user(app, email_verified=False)
    link = mailbox.link(user.email)
    run(app, "user", "update", user.email, "--email", NEW)
    page = browser.open(link)
    assert page.status == 410
    assert f'href="{BASE}/account/email"' in page.html
    assert stored(app, user) == (NEW, False)


def test_it_is_sent_again(app: Flask, browser: Browser, mailbox: Mailbox) -> None:
    user = make_user(app, email_verified=False)
    browser.sign_in()
    mailbox.read()
    browser.open(EMAIL)
    page = browser.submit(action="verify_again")
    assert 'role="status"' in page.html
    Browser(app).open(link := mailbox.link(user.email))
    browser.open(link)
    browser.submit()
    assert stored(app, user) == (user.email, True)


def test_a_user_changes_the_address(
    app: Flask, browser: Browser, user: User, mailbox: Mailbox
) -> None:
    browser.sign_in()
    mailbox.read()
    browser.open(EMAIL)
    page = browser.submit(email="Dana@Elsewhere.example", password=PASSWORD)
    assert 'role="status"' in page.html
    mails = {one["X-Envelope"].split()[-1]: one for one in mailbox.read()}
    assert mails.keys() == {NEW, user.email}
    assert NEW in str(mails[user.email])
    assert stored(app, user) == (user.email, True)  # until the link is followed
    other, link = Browser(app), link_in(mails[NEW])
    page = other.open(link)  # the mail may be read elsewhere; but who is it there?
    assert page.status == 403
    assert "/api/auth/sign-in" in page.html
    other.sign_in()
    other.open(link)
    assert "is confirmed" in other.submit().html
    assert stored(app, user) == (NEW, True)
    assert (user.email, "Your email address was changed") in mailbox.subjects()
    assert browser.open(EMAIL).status == 200
    assert Browser(app).sign_in(NEW).path.endswith("/account")


@pytest.mark.parametrize(
    ("email", "password"),
    [
        (NEW, "wrong"),
        ("dana@example.com", PASSWORD),
        ("dana", PASSWORD),
        ("dana@corp.local", PASSWORD),
        ("dana@localhost", PASSWORD),
    ],
)
def test_what_does_not_change_it(
    browser: Browser, user: User, mailbox: Mailbox, email: str, password: str
) -> None:
    browser.sign_in()
    mailbox.read()
    browser.open(EMAIL)
    assert 'aria-invalid="true"' in browser.submit(email=email, password=password).html
    assert mailbox.read() == []


def test_an_address_that_somebody_has(
    app: Flask, browser: Browser, user: User, mailbox: Mailbox
) -> None:
    """The page looks as ever; the mail goes to the one who has it."""
    make_user(app, "erin@example.com", name="Erin")
    browser.sign_in()
    mailbox.read()
    browser.open(EMAIL)
    page = browser.submit(email="erin@example.com", password=PASSWORD)
    assert 'role="status"' in page.html
    assert ("erin@example.com", "You already have an account") in mailbox.subjects()


def test_an_address_that_somebody_takes_in_the_meantime(
    app: Flask, browser: Browser, user: User, mailbox: Mailbox
) -> None:
    browser.sign_in()
    mailbox.read()
    browser.open(EMAIL)
    browser.submit(email=NEW, password=PASSWORD)
    link = mailbox.link(NEW)
    make_user(app, NEW)
    browser.open(link)
    assert browser.submit().status == 410
    assert stored(app, user) == (user.email, True)
    with app.app_context():
        assert db.session.query(User).count() == 2


def test_only_who_is_signed_in(browser: Browser) -> None:
    assert browser.open(EMAIL).path.endswith("/sign-in")
