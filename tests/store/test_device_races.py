"""Devices at the same instant: one answer, and one token response."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import audit
from sso.extensions import db
from sso.models import Consent, DeviceCode, Grant, Token, User
from sso.services import accounts, revocation
from sso.store import users
from tests.store.test_races import at_once
from tests.support.actors import Browser, Page
from tests.support.devices import Device, enter, make_device
from tests.support.events import events
from tests.support.factories import make_user


def count(app: Flask, table: Any) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(table)) or 0


def race(*acts: Callable[[], Any]) -> list[Any]:
    """Do different things at the same instant."""
    left = list(acts)
    return at_once(len(acts), lambda: left.pop()())


def press(browser: Browser, decision: str) -> Page:
    return browser.submit(decision=decision)


@pytest.mark.parametrize("number", [2, 20])
def test_one_answer_however_many_poll(
    app: Flask, browser: Browser, user: User, number: int
) -> None:
    device = make_device(app)
    device.ask()
    enter(browser, device.user_code)
    browser.allow()
    answers = at_once(number, device.poll)
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: number - 1}
    assert {answer.get_json().get("error") for answer in answers} == {None, "invalid_grant"}
    assert count(app, Token) == 1
    winner = next(answer for answer in answers if answer.status_code == 200)
    assert device.userinfo(winner.get_json()["access_token"]).status_code == 200


def test_many_early_polls(app: Flask) -> None:
    device = make_device(app)
    device.ask()
    device.poll()
    answers = at_once(10, device.poll)
    assert {answer.get_json()["error"] for answer in answers} == {"slow_down"}
    with app.app_context():
        interval = db.session.scalar(select(DeviceCode.interval))
    # Those that saw the same interval have made it longer once; a late one is early once more.
    assert interval == 5 + 5 * len(events(app, "tokens_refused"))


@pytest.mark.parametrize("decisions", [("allow", "allow"), ("allow", "deny"), ("deny", "deny")])
def test_two_people_answer_at_once(app: Flask, user: User, decisions: tuple[str, str]) -> None:
    make_user(app, "erin@example.com")
    device = make_device(app)
    for _ in range(4):
        device.ask()
        browsers = [Browser(app), Browser(app)]
        for browser, email in zip(browsers, ("dana@example.com", "erin@example.com"), strict=True):
            browser.sign_in(email)
            enter(browser, device.user_code)
        pages = race(*map(partial(partial, press), browsers, decisions))
        done = [page for page in pages if "done=" in page.url]
        assert len(done) == 1
        is_approved = "done=approved" in done[0].url
        assert (device.poll().status_code == 200) == is_approved


def test_one_person_presses_the_button_many_times(app: Flask, browser: Browser, user: User) -> None:
    device = make_device(app)
    device.ask()
    page = enter(browser, device.user_code)
    fields = {**page.fields, "decision": "allow"}
    cookies = browser.http._cookies

    def again() -> Page:
        other = Browser(app)
        other.http._cookies = dict(cookies or {})
        return other.open(page.url, method="POST", data=fields)

    pages = at_once(8, again)
    assert sum("done=approved" in page.url for page in pages) == 1
    assert count(app, Grant) == 1
    assert device.poll().status_code == 200


def test_withdrawn_while_it_is_allowed(app: Flask, user: User) -> None:
    """No lock is waited for in a circle, and nothing stays that was withdrawn."""
    device = make_device(app)
    for _ in range(6):
        device.ask()
        browser = Browser(app)
        enter(browser, device.user_code)
        race(partial(press, browser, "allow"), partial(withdraw, app, user, device))
        with app.app_context():
            has_consent = db.session.scalar(select(func.count()).select_from(Consent))
            lives = db.session.scalar(
                select(func.count()).select_from(Grant).where(Grant.ended_at.is_(None))
            )
        assert has_consent == lives
        assert (device.poll().status_code == 200) == bool(lives)
        withdraw(app, user, device)


def withdraw(app: Flask, user: User, device: Device) -> None:
    with app.app_context():
        revocation.withdraw_consent(audit.SYSTEM, user.id, device.client_id)
        db.session.commit()


def test_disabled_while_it_is_allowed(app: Flask) -> None:
    device = make_device(app)
    for number in range(4):
        user = make_user(app, f"user{number}@example.com")
        device.ask()
        browser = Browser(app)
        browser.sign_in(user.email)
        enter(browser, device.user_code)
        race(partial(press, browser, "allow"), partial(end, app, user))
        assert device.poll().status_code == 400
        with app.app_context():
            assert not db.session.scalar(
                select(func.count())
                .select_from(Grant)
                .where(Grant.user_id == user.id, Grant.ended_at.is_(None))
            )


def end(app: Flask, user: User) -> None:
    with app.app_context():
        found = users.find(user.id)
        assert found
        accounts.disable(audit.SYSTEM, found)
        db.session.commit()
