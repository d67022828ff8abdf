"""Codes that are never redeemed: however many one person has made, few are kept."""

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso.extensions import db
from sso.models import AuthorizationCode, Grant, User
from sso.store import unredeemed
from tests.actors import Browser, RelyingParty
from tests.conftest import Clock
from tests.factories import make_client, make_user
from tests.store.test_races import at_once

MOST = unredeemed.MOST


def grants_of(app: Flask, user: User) -> int:
    with app.app_context():
        return (
            db.session.scalar(
                select(func.count()).select_from(Grant).where(Grant.user_id == user.id)
            )
            or 0
        )


def authorize(browser: Browser, client: RelyingParty, times: int) -> list[str]:
    return [browser.authorize(client).code for _ in range(times)]


def test_the_oldest_go(clock: Clock, app: Flask, user: User) -> None:
    client = make_client(app, first_party=True)
    browser = Browser(app)
    browser.sign_in()
    codes = authorize(browser, client, MOST)
    assert grants_of(app, user) == MOST
    codes += authorize(browser, client, 2)
    assert MOST - 60 < grants_of(app, user) <= MOST
    assert client.exchange(codes[0]).get_json()["error"] == "invalid_grant"
    assert client.exchange(codes[-1]).status_code == 200
    assert client.exchange(codes[MOST // 2]).status_code == 200
    codes = authorize(browser, client, MOST)
    assert grants_of(app, user) <= MOST + 2


def test_redeemed_ones_are_not_counted(clock: Clock, app: Flask, user: User) -> None:
    client = make_client(app, first_party=True)
    browser = Browser(app)
    browser.sign_in()
    first = browser.authorize(client).code
    authorize(browser, client, MOST - 1)
    with app.app_context():
        db.session.execute(update(AuthorizationCode).values(used_at=clock.now()))
        db.session.execute(
            update(AuthorizationCode)
            .where(
                AuthorizationCode.grant_id
                == select(Grant.id).order_by(Grant.created_at).limit(1).scalar_subquery()
            )
            .values(used_at=None)
        )
        db.session.commit()
    authorize(browser, client, 10)
    assert grants_of(app, user) == MOST + 10
    assert client.exchange(first).status_code == 200


def test_expired_ones_are_not_counted(clock: Clock, app: Flask, user: User) -> None:
    client = make_client(app, first_party=True)
    browser = Browser(app)
    browser.sign_in()
    authorize(browser, client, MOST)
    clock.move(seconds=61)
    authorize(browser, client, 5)
    assert grants_of(app, user) == MOST + 5


def test_another_persons_are_not_counted(clock: Clock, app: Flask, user: User) -> None:
    client = make_client(app, first_party=True)
    browser = Browser(app)
    browser.sign_in()
    codes = authorize(browser, client, MOST)
    make_user(app, "erin@example.com")
    erin = Browser(app)
    erin.sign_in("erin@example.com")
    assert client.exchange(erin.authorize(client).code).status_code == 200
    assert client.exchange(codes[0]).status_code == 200


@pytest.mark.parametrize("tabs", [8])
def test_at_once(app: Flask, user: User, tabs: int) -> None:
    """Tabs that drop the same codes, and applications that redeem them: nobody fails."""
    client = make_client(app, first_party=True)
    first = Browser(app)
    first.sign_in()
    cookies = dict(first.http._cookies)
    codes = authorize(first, client, MOST - 4)
    browsers = []
    for _ in range(tabs):
        tab = Browser(app)
        tab.http._cookies.update(cookies)
        browsers.append(tab)
    waiting = iter(codes[:40])
    answers: list[int] = []

    def act() -> None:
        tab = browsers.pop()
        for _ in range(12):
            assert "code" in tab.authorize(client).parameters
            answers.append(client.exchange(next(waiting, "")).status_code)

    at_once(tabs, act)
    assert set(answers) <= {200, 400}
