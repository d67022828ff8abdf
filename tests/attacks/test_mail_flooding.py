"""The attacker wants to fill somebody's mailbox, or our tables.

It ends at a number of mails of each kind that one address gets in an hour, known or not.
"""

import re
from dataclasses import replace

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.models import Mail, MailToken, User
from sso.store.outbox import MOST_MAILS_AN_HOUR
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.mailbox import Mailbox

pytestmark = pytest.mark.slow
TOKENS = re.compile(r'name="(?:csrf_token|back)" value="[^"]*"')


def count(app: Flask, table: type) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(table)) or 0


@pytest.mark.parametrize("page", ["forgotten-password", "sign-up"])
@pytest.mark.parametrize("email", ["dana@example.com", "nobody@example.com"])
def test_an_address_gets_a_few(
    clock: Clock, app: Flask, user: User, mailbox: Mailbox, page: str, email: str
) -> None:
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, sign_up="open")
    answers = set()
    for n in range(MOST_MAILS_AN_HOUR + 7):
        browser = Browser(app)
        browser.open(f"{ORIGIN}{BASE}/{page}")
        spelled = email.upper() if n % 2 else f" {email} "
        answers.add(TOKENS.sub("", browser.submit(email=spelled).html))
        mailbox.deliver()
    assert len(answers) == 1
    assert count(app, Mail) == MOST_MAILS_AN_HOUR
    assert count(app, MailToken) <= MOST_MAILS_AN_HOUR
    assert count(app, User) == 1
    mailbox.read()
    clock.move(minutes=61)
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/{page}")
    browser.submit(email=email)
    assert count(app, Mail) == MOST_MAILS_AN_HOUR + 1


def test_what_nobody_needs_is_purged(
    clock: Clock, app: Flask, user: User, mailbox: Mailbox
) -> None:
    for email in (user.email, "nobody@example.com"):
        browser = Browser(app)
        browser.open(f"{ORIGIN}{BASE}/forgotten-password")
        browser.submit(email=email)
    mailbox.deliver()
    for days, left in ((0, [2, 1]), (1.1, [1, 0]), (6, [0, 0])):
        clock.move(days=days)
        app.test_cli_runner().invoke(args=["purge"])
        assert [count(app, Mail), count(app, MailToken)] == left
