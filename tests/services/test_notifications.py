"""What users are told by mail of what happens to their account."""

from flask import Flask

from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox, text_of

CHANGED = "Your password was changed"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def sign_out(browser: Browser) -> None:
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")


def test_a_sign_in_from_a_new_browser(app: Flask, user: User, mailbox: Mailbox) -> None:
    browser = Browser(app)
    browser.http.environ_base.update(HTTP_USER_AGENT=FIREFOX, REMOTE_ADDR="192.0.2.7")
    browser.sign_in()
    (mail,) = mailbox.read()
    assert mail["Subject"] == "New sign-in to your account"
    words = " ".join(text_of(mail).split())
    assert "Firefox on Linux" in words
    assert "192.0.2.7" in words
    assert f"{ORIGIN}{BASE}/forgotten-password" in words

    browser.sign_in()
    browser.sign_in()
    assert mailbox.read() == []
    Browser(app).sign_in()
    assert len(mailbox.read()) == 1


def test_a_browser_is_new_to_each_user(app: Flask, user: User, mailbox: Mailbox) -> None:
    make_user(app, "erin@example.com", name="Erin")
    browser = Browser(app)
    for email in (user.email, "erin@example.com", user.email):
        browser.open(f"{ORIGIN}{BASE}/sign-in")
        browser.submit(email=email, password=PASSWORD, remember="y")
        sign_out(browser)
    assert [to for to, _ in mailbox.subjects()] == [user.email, "erin@example.com"]


def test_over_the_session_of_somebody_else(app: Flask, user: User, mailbox: Mailbox) -> None:
    """The browser is as new to them as any other."""
    make_user(app, "erin@example.com", name="Erin")
    browser = Browser(app)
    browser.sign_in()
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.submit(email="erin@example.com", password=PASSWORD)
    assert [to for to, _ in mailbox.subjects()] == [user.email, "erin@example.com"]


def test_a_failed_sign_in_tells_nobody(browser: Browser, user: User, mailbox: Mailbox) -> None:
    browser.sign_in(password="wrong wrong wrong")
    assert mailbox.read() == []


def test_a_new_password(app: Flask, browser: Browser, user: User, mailbox: Mailbox) -> None:
    browser.sign_in()
    mailbox.read()
    browser.open(f"{ORIGIN}{BASE}/account")
    new = "another long password"
    browser.submit(action="change_password", old_password="wrong", new_password=new)
    assert mailbox.read() == []
    browser.open(f"{ORIGIN}{BASE}/account")
    browser.submit(action="change_password", old_password=PASSWORD, new_password=new)
    assert mailbox.subjects() == [(user.email, CHANGED)]
    arguments = ["user", "set-password", user.email, "--password-stdin"]
    app.test_cli_runner().invoke(args=arguments, input=PASSWORD + "\n")
    assert mailbox.subjects() == [(user.email, CHANGED)]


def test_the_doctor_is_no_person(app: Flask, mailbox: Mailbox) -> None:
    make_user(app, "doctor-1@sso-doctor.example")
    Browser(app).sign_in("doctor-1@sso-doctor.example")
    assert mailbox.read() == []
