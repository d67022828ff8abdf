"""The attacker had the password alone, and asked for something before the first second factor.

It ends at the first factor: links that were under way then, and tokens that were had, open nothing.
"""

from email.message import EmailMessage

import pytest
from flask import Flask

from sso.extensions import db
from sso.models import User
from sso.services import mail_links
from sso.store import users
from tests.attacks.test_copied_session import copy_of
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_client
from tests.support.mailbox import Mailbox, link_in
from tests.support.second_factors import ACCOUNT, code_of, confirm_by_code, enrol_totp, is_signed_in

EVIL = "thief@elsewhere.example"


def ask_for_address(browser: Browser, mailbox: Mailbox, address: str = EVIL) -> str:
    """The link that confirms another address."""
    mailbox.read()
    browser.open(f"{ACCOUNT}/email")
    browser.submit(email=address, password=PASSWORD)
    (mail,) = [one for one in mailbox.read() if _is_to(one, address)]
    return link_in(mail)


def _is_to(mail: EmailMessage, address: str) -> bool:
    return str(mail["X-Envelope"]).endswith(f" {address}")


def enrol(app: Flask, mailbox: Mailbox) -> tuple[Browser, str]:
    owner = Browser(app)
    owner.sign_in()
    confirm_by_code(owner, mailbox)
    return owner, enrol_totp(owner)[0]


def email_of(app: Flask, user: User) -> str:
    with app.app_context():
        found = users.find(user.id)
        assert found
        return found.email


def test_a_change_of_address_ends_with_the_first_factor(
    app: Flask, user: User, mailbox: Mailbox
) -> None:
    thief = Browser(app)
    thief.sign_in()
    link = ask_for_address(thief, mailbox)
    owner, _ = enrol(app, mailbox)
    assert owner.open(link).status == 410


def test_a_change_of_address_asks_for_a_recent_factor(
    app: Flask, user: User, mailbox: Mailbox, clock: Clock
) -> None:
    owner, secret = enrol(app, mailbox)
    link = ask_for_address(owner, mailbox, "dana@elsewhere.example")
    clock.move(minutes=20)
    thief = copy_of(app, owner)
    assert thief.open(link).path.endswith("/second-factor")
    assert email_of(app, user) == user.email
    # Its owner shows the factor, and is back at the question.
    assert owner.open(link).path.endswith("/second-factor")
    page = owner.submit(code=code_of(secret))
    assert (page.path, page.status) == (f"{BASE}/verify-email", 200)
    assert "is confirmed" in owner.submit().html
    assert email_of(app, user) == "dana@elsewhere.example"


def test_a_question_that_was_left_open_asks_for_it_too(
    app: Flask, user: User, mailbox: Mailbox, clock: Clock
) -> None:
    owner, _ = enrol(app, mailbox)
    owner.open(ask_for_address(owner, mailbox))
    clock.move(minutes=20)
    assert owner.submit().path.endswith("/second-factor")
    assert email_of(app, user) == user.email


def operator(app: Flask, *arguments: str) -> str:
    result = app.test_cli_runner().invoke(args=["user", *arguments])
    assert result.exit_code == 0, result.stderr
    return result.output


@pytest.mark.parametrize("ended_by", ["factor", "reset"])
def test_a_link_of_an_operator_ends(
    app: Flask, user: User, mailbox: Mailbox, ended_by: str
) -> None:
    made = operator(app, "enrolment-link", user.email, "--hours", "168")
    (link,) = [word for word in made.split() if word.startswith("http")]
    if ended_by == "factor":
        enrol(app, mailbox)
        with app.app_context():
            assert mail_links.find(link.partition("token=")[2], mail_links.ENROLMENT) is None
            db.session.rollback()
    operator(app, "reset-factors", user.email)
    thief = Browser(app)
    thief.sign_in()
    assert thief.open(link).status == 410


def test_offline_tokens_of_others_end_and_ones_own_go_on(
    app: Flask, user: User, mailbox: Mailbox
) -> None:
    scope = "openid profile email offline_access"
    client = make_client(app, scope=scope)
    thief, owner = Browser(app), Browser(app)
    theirs = client.exchange(thief.approve(client, scope=scope).code).get_json()
    own = client.exchange(owner.approve(client, scope=scope).code).get_json()
    confirm_by_code(owner, mailbox)
    enrol_totp(owner)
    assert client.refresh(theirs["refresh_token"]).status_code == 400
    assert client.refresh(own["refresh_token"]).status_code == 200
    assert not is_signed_in(thief)
    assert is_signed_in(owner)
    assert owner.open(f"{ORIGIN}{BASE}/account").status == 200
