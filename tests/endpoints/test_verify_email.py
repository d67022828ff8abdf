"""Addresses are proven by their mail, and change only so."""

import json

import pytest
from flask import Flask

from sso.extensions import db
from sso.models import User
from sso.store import users
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox, link_in

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
