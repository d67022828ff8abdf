"""Single use under real concurrency: many connections at the same instant."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier, BoundedSemaphore
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso import clock, keys, passwords
from sso.extensions import db
from sso.jobs import key_rotation
from sso.models import SigningKey, Token, User
from sso.store import signing_keys
from tests.actors import Browser, RelyingParty


def at_once(count: int, act: Callable[[], Any]) -> list[Any]:
    """Do it in so many threads at the same instant."""
    barrier = Barrier(count)

    def wait_and_act(_: int) -> Any:
        barrier.wait(30)
        return act()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(wait_and_act, range(count)))


def token_rows(app: Flask) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(Token)) or 0


@pytest.mark.parametrize("count", [2, 20])
def test_one_code(
    app: Flask, browser: Browser, client: RelyingParty, user: User, count: int
) -> None:
    code = browser.approve(client).code
    answers = at_once(count, lambda: client.exchange(code))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: count - 1}
    assert token_rows(app) == 1


def test_one_refresh_token(app: Flask, browser: Browser, client: RelyingParty, user: User) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    answers = at_once(20, lambda: client.refresh(tokens["refresh_token"]))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.get_json()["refresh_token"] for answer in answers}) == 1


def test_one_refresh_token_without_leeway(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    from dataclasses import replace

    app.extensions["sso.settings"] = replace(app.extensions["sso.settings"], refresh_token_leeway=0)
    tokens = client.exchange(browser.approve(client).code).get_json()
    answers = at_once(20, lambda: client.refresh(tokens["refresh_token"]))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 19}
    winner = next(answer for answer in answers if answer.status_code == 200)
    assert client.userinfo(winner.get_json()["access_token"]).status_code == 401


def test_many_people_at_once(
    app: Flask, client: RelyingParty, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers wait for each other; nobody meets a locked database."""
    monkeypatch.setattr(passwords, "_places", BoundedSemaphore(10))

    def whole_flow() -> int:
        tokens = client.exchange(Browser(app).approve(client).code).get_json()
        return client.userinfo(tokens["access_token"]).status_code

    assert at_once(10, whole_flow) == [200] * 10


def test_the_rotation_of_keys(app: Flask) -> None:
    """However many workers see that the keys are old, they are rotated once."""
    with app.app_context():
        db.session.execute(update(SigningKey).values(activated_at=clock.now() - timedelta(days=91)))
        db.session.commit()

    def work() -> int:
        with app.app_context():
            return key_rotation.rotate_aged()

    assert sorted(at_once(4, work)) == [0, 0, 0, len(keys.ALGORITHMS)]
    with app.app_context():
        states = Counter(key.state for key in signing_keys.every())
    assert set(states.values()) == {len(keys.ALGORITHMS)}
