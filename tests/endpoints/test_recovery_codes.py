"""The sheet of recovery codes: to be copied, and saved as a file, from the page that shows it."""

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.factories import make_user
from tests.support.mailbox import Mailbox
from tests.support.second_factors import (
    FACTORS,
    code_of,
    codes_of,
    confirm_by_code,
    enrol_totp,
    scan,
)

DOWNLOAD = f"{BASE}/account/factors/recovery-codes"


def shown(browser: Browser) -> Page:
    secret = scan(browser.open(f"{FACTORS}/totp"))
    return browser.submit(code=code_of(secret))


@pytest.fixture
def sheet(browser: Browser, user: User, clock: Clock) -> Page:
    browser.sign_in()
    return shown(browser)


def save(browser: Browser, fields: dict[str, str]) -> TestResponse:
    return browser.http.post(DOWNLOAD, data=fields, base_url=ORIGIN)


def test_it_is_saved_as_a_file(browser: Browser, sheet: Page, user: User) -> None:
    answer = save(browser, sheet.fields)
    assert answer.content_type == "text/plain; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="recovery-codes.txt"'
    lines = answer.text.splitlines()
    assert [line for line in lines if line.count("-") == 3] == codes_of(sheet)
    assert user.email in lines


@pytest.mark.parametrize("change", ["later", "another session", "another person", "forged", "none"])
def test_it_is_of_this_session_and_this_hour(
    app: Flask, browser: Browser, sheet: Page, clock: Clock, change: str
) -> None:
    fields, other = dict(sheet.fields), browser
    if change == "later":
        clock.move(minutes=16)
    elif change == "forged":
        fields["sheet"] = "x" + fields["sheet"]
    elif change == "none":
        del fields["sheet"]
    else:
        if change == "another person":
            make_user(app, "erin@example.com")
        else:
            browser.open(f"{ORIGIN}{BASE}/account/factors/recovery-codes")
        other = Browser(app)
        other.sign_in("erin@example.com") if change == "another person" else other.sign_in()
        fields["csrf_token"] = other.page.fields["csrf_token"]
    answer = save(other, fields)
    assert answer.status_code == 303
    assert not any(code in answer.text for code in codes_of(sheet))


def test_the_page_is_gone_afterwards(browser: Browser, sheet: Page) -> None:
    assert codes_of(browser.open(FACTORS)) == []
    assert browser.http.get(DOWNLOAD, base_url=ORIGIN).status_code == 405


def test_it_needs_the_csrf_token(browser: Browser, sheet: Page) -> None:
    answer = save(browser, {"sheet": sheet.fields["sheet"]})
    assert answer.status_code == 303


def test_new_codes_are_reported_by_mail(app: Flask, user: User, mailbox: Mailbox) -> None:
    """A stranger at an open session who makes codes would else have a way in, unseen."""
    browser = Browser(app)
    browser.sign_in()
    confirm_by_code(browser, mailbox)
    _, first = enrol_totp(browser)
    mailbox.read()
    browser.open(f"{ORIGIN}{BASE}/account/confirm?action=new_codes")
    codes = codes_of(browser.submit(action="new_codes"))
    assert len(codes) == 10
    assert set(codes).isdisjoint(first)
    (mail,) = mailbox.read()
    assert user.email in mail["To"]
    assert "recovery codes" in mail["Subject"].lower()
