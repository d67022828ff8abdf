"""Codes that are never redeemed: however many one person has made, few are kept."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from time import sleep
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import audit
from sso import clock as sso_clock
from sso.crypto import secrets
from sso.extensions import db
from sso.models import AuthorizationCode, BrowserSession, Grant, User
from sso.services import revocation
from sso.store import approvals, grants
from tests.conftest import Clock
from tests.store.test_races import at_once
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import make_client, make_user

MOST = approvals.MOST_UNREDEEMED


class Flood(NamedTuple):
    """Somebody who is signed in, and the codes they had made, oldest first."""

    browser: Browser
    client: RelyingParty
    codes: list[str]


def grants_of(app: Flask, user: User) -> int:
    count = select(func.count()).select_from(Grant).where(Grant.user_id == user.id)
    with app.app_context():
        return db.session.scalar(count) or 0


def flood(app: Flask, user: User, count: int, used: bool = False) -> Flood:
    """As many authorization requests would leave it."""
    client = make_client(app, first_party=True)
    browser = Browser(app)
    browser.sign_in(user.email)
    codes = [f"code-{user.id}-{number}" for number in range(count)]
    with app.app_context():
        now = sso_clock.now()
        session = db.session.scalars(
            select(BrowserSession).where(BrowserSession.user_id == user.id)
        ).one()
        for number, code in enumerate(codes):
            grant_id = uuid4()
            db.session.add(
                Grant(
                    id=grant_id,
                    user_id=user.id,
                    client_id=client.client_id,
                    session_id=session.id,
                    sid=str(session.id),
                    scope="openid",
                    auth_time=now,
                    amr="pwd",
                    created_at=now + timedelta(microseconds=number),
                )
            )
            db.session.add(
                AuthorizationCode(
                    digest=secrets.digest(code),
                    grant_id=grant_id,
                    redirect_uri=client.redirect_uri,
                    expires_at=now + timedelta(seconds=60),
                    used_at=now if used else None,
                )
            )
        db.session.commit()
    return Flood(browser, client, codes)


def test_the_oldest_go(clock: Clock, app: Flask, user: User) -> None:
    browser, client, codes = flood(app, user, MOST - 1)
    codes = [*codes, browser.authorize(client).code]
    assert grants_of(app, user) == MOST
    codes += [browser.authorize(client).code for _ in range(2)]
    assert MOST - 60 < grants_of(app, user) <= MOST
    assert client.exchange(codes[0]).get_json()["error"] == "invalid_grant"
    assert client.exchange(codes[-1]).status_code == 200
    assert client.exchange(codes[MOST // 2]).status_code == 200


def test_below_the_limit_none_go(clock: Clock, app: Flask, user: User) -> None:
    browser, client, codes = flood(app, user, MOST - 1)
    assert browser.authorize(client).code
    assert client.exchange(codes[0]).status_code == 200


def test_redeemed_ones_are_not_counted(clock: Clock, app: Flask, user: User) -> None:
    browser, client, _ = flood(app, user, MOST, used=True)
    first = browser.authorize(client).code
    assert browser.authorize(client).code
    assert grants_of(app, user) == MOST + 2
    assert client.exchange(first).status_code == 200


def test_redeemed_ones_cost_one_statement(
    clock: Clock, app: Flask, user: User, statements: Callable[..., Any]
) -> None:
    """Nobody counts hundreds of them at each request; the limit holds for what comes after."""
    browser, client, _ = flood(app, user, MOST - 2, used=True)
    browser.authorize(client)

    def cost() -> int:
        with statements() as ran:
            assert browser.authorize(client).code
        return len(ran)

    usual = cost()
    counting = [cost() for _ in range(6)]
    assert counting[0] > usual
    assert set(counting[1:]) == {usual}
    for _ in range(MOST + 20):  # none of these is redeemed
        browser.authorize(client)
    with app.app_context():
        unredeemed = select(func.count()).where(AuthorizationCode.used_at.is_(None))
        assert MOST - 60 < (db.session.scalar(unredeemed) or 0) <= MOST


def test_expired_ones_are_not_counted(clock: Clock, app: Flask, user: User) -> None:
    browser, client, _ = flood(app, user, MOST)
    clock.move(seconds=61)
    assert browser.authorize(client).code
    assert grants_of(app, user) == MOST + 1


def test_another_persons_are_not_counted(clock: Clock, app: Flask, user: User) -> None:
    _, client, codes = flood(app, user, MOST)
    make_user(app, "erin@example.com")
    erin = Browser(app)
    erin.sign_in("erin@example.com")
    assert client.exchange(erin.authorize(client).code).status_code == 200
    assert client.exchange(codes[0]).status_code == 200


@pytest.mark.parametrize("tabs", [4])
def test_at_once(app: Flask, user: User, tabs: int) -> None:
    """Tabs that drop the same codes, and an application that redeems them: nobody fails."""
    first, client, codes = flood(app, user, MOST - 2)
    browsers = []
    for _ in range(tabs):
        tab = Browser(app)
        assert tab.http._cookies is not None
        assert first.http._cookies is not None
        tab.http._cookies.update(first.http._cookies)
        browsers.append(tab)
    waiting = iter(codes[: 2 * tabs])
    answers: list[int] = []

    def act() -> None:
        tab = browsers.pop()
        for _ in range(4):
            assert "code" in tab.authorize(client).parameters
            answers.append(client.exchange(next(waiting, "")).status_code)

    at_once(tabs, act)
    assert set(answers) <= {200, 400}


class Dropping:
    """Somebody's request that has dropped codes, and goes on a moment later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._drop_oldest, self._has_dropped = approvals.drop_oldest_unredeemed, Event()
        monkeypatch.setattr(approvals, "drop_oldest_unredeemed", self._drop)

    def _drop(self, *values: Any) -> bool:
        is_done = self._drop_oldest(*values)
        self._has_dropped.set()
        sleep(0.5)
        return is_done

    def status(self, browser: Browser, client: RelyingParty, meanwhile: Callable[[], None]) -> int:
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(browser.authorize, client)
            assert self._has_dropped.wait(5)
            meanwhile()
            return asking.result(5).status


def test_an_end_meanwhile(app: Flask, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ending waits for requests that drop grants, and neither fails."""
    browser, client, _ = flood(app, user, MOST)

    def disable() -> None:
        result = app.test_cli_runner().invoke(args=["user", "disable", user.email])
        assert result.exit_code == 0, result.output

    assert Dropping(monkeypatch).status(browser, client, disable) < 500
    with app.app_context():
        assert not db.session.scalars(select(Grant.id).where(Grant.ended_at.is_(None))).all()


def test_a_withdrawal_meanwhile(app: Flask, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consent, too, comes before the grants."""
    browser, client, _ = flood(app, user, MOST)
    with app.app_context():
        grants.remember_consent(user.id, client.client_id, ["openid", "profile", "email"])
        db.session.commit()

    def withdraw() -> None:
        with app.app_context():
            revocation.withdraw_consent(audit.USER, user.id, client.client_id)
            db.session.commit()

    assert Dropping(monkeypatch).status(browser, client, withdraw) < 500
