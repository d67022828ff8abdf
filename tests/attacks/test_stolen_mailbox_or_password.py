"""Somebody has the password alone, or the mailbox alone, or asks for an address of others."""

from collections.abc import Callable

import pytest
from flask import Flask

from sso.models import User
from sso.store import users
from tests.attacks.conftest import Watch
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.authenticator import Authenticator
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox, MailServer, link_in, text_of
from tests.support.second_factors import (
    confirm_by_code,
    enrol_passkey,
    enrol_totp,
    is_signed_in,
    sign_in_by_passkey,
)

pytestmark = pytest.mark.slow

NEW = "another long password"
THIEFS = "the password of a thief"


@pytest.fixture
def by_name(make_app: Callable[..., Flask], smtp: MailServer) -> Flask:
    """A server at an address that browsers allow passkeys at."""
    return make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}", SSO_SMTP_URL=smtp.url)


def test_what_the_mail_advises_shuts_the_thief_out(by_name: Flask, smtp: MailServer) -> None:
    mailbox = Mailbox(by_name, smtp)
    make_user(by_name)
    thief, key = Browser(by_name), Authenticator()
    thief.sign_in()  # with a stolen password, and once in the mailbox
    confirm_by_code(thief, mailbox)
    enrol_passkey(thief, key)
    (notice,) = [m for m in mailbox.read() if "second factor was added" in m["Subject"]]
    assert "administrator" in text_of(notice)
    reset = by_name.test_cli_runner().invoke(args=["user", "reset-factors", "dana@example.com"])
    assert reset.exit_code == 0
    assert not is_signed_in(thief)
    owner = Browser(by_name)
    owner.open(f"{ORIGIN}{BASE}/forgotten-password")
    owner.submit(email="dana@example.com")
    (mail,) = [m for m in mailbox.read() if m["Subject"] == "Set a new password"]
    link = link_in(mail)
    owner.open(link.replace("localhost:5000", "127.0.0.1:5000"))
    owner.submit(new_password=NEW)
    thief.open(f"{ORIGIN}{BASE}/sign-in")
    sign_in_by_passkey(thief, key)
    thief.sign_in()
    assert not is_signed_in(thief)


def test_who_has_the_mailbox_gets_no_more_codes_to_guess(
    app: Flask, user: User, mailbox: Mailbox, watch: Watch
) -> None:
    dana = Browser(app)
    dana.sign_in()
    confirm_by_code(dana, mailbox)
    enrol_totp(dana)
    tried = 0
    for number in range(5):
        watch.now += 2
        password = f"{NEW} {number}"
        thief = Browser(app)
        thief.http.environ_base["REMOTE_ADDR"] = "203.0.113.1"
        thief.open(f"{ORIGIN}{BASE}/forgotten-password")
        thief.submit(email=user.email)
        (mail,) = [one for one in mailbox.read() if one["Subject"] == "Set a new password"]
        link = link_in(mail)
        thief.open(link)
        thief.submit(new_password=password)
        thief.sign_in(password=password)
        assert thief.page.path.endswith("/second-factor")
        for _ in range(30):
            if thief.submit(code="000000").status == 429:
                break
            tried += 1
    assert tried <= 11, f"{tried} guesses in ten seconds, from one address"


def test_strangers_put_no_words_into_a_mail_by_a_change_of_address(
    app: Flask, mailbox: Mailbox
) -> None:
    make_user(app, email="mallory@example.com", name="You won! Go to https://evil.example/now")
    mallory = Browser(app)
    mallory.sign_in("mallory@example.com")
    mallory.open(f"{ORIGIN}{BASE}/account/email")
    fields = {**mallory.page.fields, "email": "victim@example.com", "password": PASSWORD}
    fields.pop("action", None)
    mallory.open(f"{ORIGIN}{BASE}/account/email", method="POST", data=fields)
    (mail,) = [m for m in mailbox.read() if "victim@example.com" in m["To"]]
    assert "evil" not in mail.as_string()


def test_a_stranger_does_not_confirm_the_address_of_somebody_elses_account(
    app: Flask, mailbox: Mailbox
) -> None:
    mallory_row = make_user(app, email="mallory@example.com", name="Mallory")
    mallory = Browser(app)
    mallory.sign_in("mallory@example.com")
    mallory.open(f"{ORIGIN}{BASE}/account/email")
    fields = {**mallory.page.fields, "email": "victim@example.com", "password": PASSWORD}
    fields.pop("action", None)
    mallory.open(f"{ORIGIN}{BASE}/account/email", method="POST", data=fields)
    (mail,) = [m for m in mailbox.read() if "victim@example.com" in m["To"]]
    victim = Browser(app)  # not signed in; asked "Is this your address?", says yes
    page = victim.open(link_in(mail))
    assert "mallory" not in page.html.lower()
    victim.submit()
    with app.app_context():
        row = users.find(mallory_row.id)
        assert row is not None
        assert (row.email, row.email_verified) != ("victim@example.com", True)
