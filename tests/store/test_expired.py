"""Purging: what reuse has to be seen by stays, the rest goes."""

from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import clock as sso_clock
from sso.extensions import db
from sso.jobs import purge as purging
from sso.models import AuthorizationCode, BrowserSession, Grant, Token, User
from tests.actors import Browser, RelyingParty
from tests.conftest import Clock


def purge(app: Flask) -> dict[str, int]:
    with app.app_context():
        return purging.purge()


def rows(app: Flask) -> list[int]:
    tables = (Token, AuthorizationCode, Grant, BrowserSession)
    with app.app_context():
        return [db.session.scalar(select(func.count()).select_from(t)) or 0 for t in tables]


def test_everything_goes_in_the_end(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    code = browser.approve(client).code
    tokens = client.exchange(code).get_json()
    client.refresh(tokens["refresh_token"])
    before = rows(app)
    assert before == [2, 1, 1, 1]
    purge(app)
    assert rows(app) == before
    clock.move(days=20)  # the session is over, the refresh token could live on
    purge(app)
    assert rows(app) == [2, 1, 1, 0]
    assert client.exchange(code).get_json()["error"] == "invalid_grant"
    clock.move(days=12)
    purge(app)
    assert rows(app) == [0, 0, 0, 0]


def test_reuse_is_seen_as_long_as_it_matters(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    successor = client.refresh(tokens["refresh_token"]).get_json()
    clock.move(days=10)
    purge(app)
    assert client.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert client.refresh(successor["refresh_token"]).get_json()["error"] == "invalid_grant"


def leave_sessions(app: Flask, user: User, count: int) -> None:
    """Sessions that expired two days ago, all in the same second."""
    then = sso_clock.now() - timedelta(days=2)
    with app.app_context():
        db.session.add_all(
            BrowserSession(
                digest=f"old-{number}",
                user_id=user.id,
                auth_time=then,
                amr="pwd",
                acr="1",
                expires_at=then.replace(microsecond=0),
            )
            for number in range(count)
        )
        db.session.commit()


@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_every_row_is_found_whatever_the_batch(app: Flask, user: User, size: int) -> None:
    leave_sessions(app, user, 7)
    with app.app_context():
        each = [deleted for name, deleted in purging.batches(size) if name == "browser_sessions"]
    assert sum(each) == 7
    assert max(each) <= size
    assert rows(app)[3] == 0


def test_a_worker_purges_piece_by_piece(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging.batches, "__defaults__", (3,))
    leave_sessions(app, user, 7)
    work = purging.Piecewise()
    with app.app_context():
        assert [work() for _ in range(5)] == [3, 3, 1, 0, 0]
    leave_sessions(app, user, 1)
    with app.app_context():
        assert [work() for _ in range(2)] == [1, 0]


def test_what_another_has_locked_is_left_for_the_next_time(app: Flask, user: User) -> None:
    """A reader, which is all that SQLite makes of it, is in nobody's way."""
    leave_sessions(app, user, 3)
    with app.app_context():
        locked = 0 if db.engine.dialect.name == "sqlite" else 1
        with db.engine.connect() as other:
            first = select(BrowserSession.id).limit(1).with_for_update()
            assert other.execute(first).first()
            assert purging.purge()["browser_sessions"] == 3 - locked
        assert purging.purge()["browser_sessions"] == locked
