"""Purging: what reuse has to be seen by stays, the rest goes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import func, insert, select

from sso import clock as sso_clock
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import AuthorizationCode, BrowserSession, Grant, LogoutDelivery, Token, User
from sso.store import expired
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import make_client

RARE = pytest.mark.exhaustive


def purge(app: Flask) -> dict[str, int]:
    with app.app_context():
        return upkeep.purge()


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


def test_what_stays_is_examined_by_the_database(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User, statements: Any
) -> None:
    """A used code is examined at each purge until its tokens have expired, which takes a month."""
    client.exchange(browser.approve(client).code)
    with app.app_context():
        code = db.session.scalars(select(AuthorizationCode)).one()
        columns = {c.key: getattr(code, c.key) for c in AuthorizationCode.__table__.columns}
        copies = [{**columns, "digest": f"code {number}"} for number in range(1000)]
        db.session.execute(insert(AuthorizationCode), copies)
        db.session.commit()
        clock.move(days=2)
        (expiry,) = (each for each in expired.EXPIRIES if each.table is AuthorizationCode)
        with statements() as executed:
            assert list(upkeep.batches(expiries=[expiry])) == [("authorization_codes", 0)]
    assert len(executed) == 2


@pytest.mark.parametrize("start", [0.0, 0.5, 0.999])
def test_a_worker_examines_a_part_of_what_stays(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User,
    monkeypatch: pytest.MonkeyPatch, start: float,
) -> None:  # fmt: skip
    """And the next part an hour later, wherever it began: all rows have their turn."""
    live = client.exchange(browser.approve(client).code).get_json()
    assert live["refresh_token"]
    with app.app_context():
        code = db.session.scalars(select(AuthorizationCode)).one()
        grant = db.session.scalars(select(Grant)).one()
        columns = {c.key: getattr(code, c.key) for c in AuthorizationCode.__table__.columns}
        other = {c.key: getattr(grant, c.key) for c in Grant.__table__.columns}
        db.session.execute(insert(Grant), [{**other, "id": uuid4()}])
        without_tokens = db.session.scalars(select(Grant.id).where(Grant.id != grant.id)).one()
        ids = [*[grant.id] * 14, *[without_tokens] * 3, *[grant.id] * 13]
        db.session.execute(insert(AuthorizationCode), [
            {**columns, "digest": f"code {number}", "grant_id": grant_id,
             "expires_at": columns["expires_at"] + timedelta(seconds=number)}
            for number, grant_id in enumerate(ids)
        ])  # fmt: skip
        db.session.commit()
        clock.move(days=2)
        (expiry,) = (each for each in expired.EXPIRIES if each.table is AuthorizationCode)
        monkeypatch.setattr(upkeep, "MOST_STAYING", 6)
        monkeypatch.setattr(expired.delete_batch, "__defaults__", (2,))
        monkeypatch.setattr("random.random", lambda: start)
        delete_batch, examined = expired.delete_batch, 0

        def counting(*arguments: Any) -> expired.Batch:
            nonlocal examined
            examined += 1
            return delete_batch(*arguments)

        monkeypatch.setattr(expired, "delete_batch", counting)
        work, deleted = upkeep.Piecewise([expiry]), 0
        for _ in range(8):
            examined = 0
            while count := work():
                deleted += count
            assert examined <= 6  # batches: three that stay, and those with something to delete
        assert deleted == 3
        assert upkeep.purge()["authorization_codes"] == 0
        assert db.session.scalar(select(func.count()).select_from(AuthorizationCode)) == 28


@pytest.mark.parametrize(
    "examined", [1, pytest.param(2, marks=RARE), pytest.param(6, marks=RARE), 7, 8]
)
@pytest.mark.parametrize("size", [1, pytest.param(3, marks=RARE), 7, 8])
def test_every_row_is_found_whatever_is_examined_at_once(
    app: Flask, user: User, size: int, examined: int
) -> None:
    leave_sessions(app, user, 7)
    (expiry,) = (each for each in expired.EXPIRIES if each.table is BrowserSession)
    last: tuple[Any, Any] | None = None
    deleted: list[int] = []
    with app.app_context():
        while not deleted or last is not None:
            last, count, _ = expired.delete_batch(expiry, last, size, examined)
            assert count <= min(size, examined)
            deleted.append(count)
    assert sum(deleted) == 7


@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_every_row_is_found_whatever_the_batch(app: Flask, user: User, size: int) -> None:
    leave_sessions(app, user, 7)
    with app.app_context():
        each = [deleted for name, deleted in upkeep.batches(size) if name == "browser_sessions"]
    assert sum(each) == 7
    assert max(each) <= size
    assert rows(app)[3] == 0


def test_a_worker_purges_piece_by_piece(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep.batches, "__defaults__", (3, expired.EXPIRIES, None))
    leave_sessions(app, user, 7)
    work = upkeep.Piecewise()
    with app.app_context():
        assert [work() for _ in range(5)] == [3, 3, 1, 0, 0]
    leave_sessions(app, user, 1)
    with app.app_context():
        assert [work() for _ in range(2)] == [1, 0]


def test_a_worker_begins_again_after_a_failure(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_sessions(app, user, 1)
    work = upkeep.Piecewise()
    with app.app_context():
        with monkeypatch.context() as unreachable:
            unreachable.setattr(expired, "delete_batch", Mock(side_effect=ConnectionError))
            with pytest.raises(ConnectionError):
                work()
        assert work() == 1


def test_what_another_has_locked_is_left_for_the_next_time(app: Flask, user: User) -> None:
    """A reader, which is all that SQLite makes of it, is in nobody's way."""
    leave_sessions(app, user, 3)
    with app.app_context():
        locked = 0 if db.engine.dialect.name == "sqlite" else 1
        with db.engine.connect() as other:
            first = select(BrowserSession.id).limit(1).with_for_update()
            assert other.execute(first).first()
            assert upkeep.purge()["browser_sessions"] == 3 - locked
        assert upkeep.purge()["browser_sessions"] == locked


def grants_of(app: Flask) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(Grant)) or 0


def test_what_never_gave_a_token_goes_while_its_session_lives(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    code = browser.approve(client).code
    browser.authorize(client)
    clock.move(seconds=59)
    purge(app)
    tokens = client.exchange(code).get_json()
    assert rows(app) == [1, 2, 2, 1]
    clock.move(minutes=9)
    purge(app)
    assert grants_of(app) == 2
    clock.move(minutes=2)
    purge(app)
    assert rows(app) == [1, 1, 1, 1]
    assert client.refresh(tokens["refresh_token"]).status_code == 200


def test_a_long_lived_code_is_not_purged(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    settings = replace(app.extensions["sso.settings"], authorization_code_lifetime=660)
    app.extensions["sso.settings"] = settings
    code = browser.approve(client).code
    clock.move(seconds=60)
    clock.move(seconds=599)
    purge(app)
    assert client.exchange(code).status_code == 200


def test_what_gave_tokens_stays_while_its_session_lives(
    clock: Clock, app: Flask, browser: Browser, user: User
) -> None:
    """However long ago: the client is owed a logout token when the session ends."""
    client = make_client(app, backchannel_logout_uri="https://books.example/backchannel")
    client.exchange(browser.approve(client).code)
    for _ in range(5):
        clock.move(days=13)
        browser.open("/api/auth/account")  # the session goes on; the refresh token expires
        purge(app)
    assert rows(app)[:2] == [0, 0]
    assert grants_of(app) == 1
    browser.open("/api/auth/sign-out")
    browser.submit(decision="sign_out")
    with app.app_context():
        assert len(db.session.scalars(select(LogoutDelivery)).all()) == 1


def test_what_ended_goes_while_its_session_lives_if_another_stands_for_it(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    first = client.exchange(browser.approve(client).code).get_json()
    client.revoke(first["refresh_token"])
    clock.move(days=2)
    browser.authorize(client)  # gives nothing
    purge(app)
    assert grants_of(app) == 2, "it alone reminds of the logout token"
    clock.move(minutes=30)
    purge(app)
    second = client.exchange(browser.authorize(client).code).get_json()
    assert grants_of(app) == 2
    purge(app)
    assert rows(app) == [1, 1, 1, 1]
    assert client.refresh(second["refresh_token"]).status_code == 200


def test_what_another_client_was_given_does_not_stand_for_it(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    first = client.exchange(browser.approve(client).code).get_json()
    client.revoke(first["refresh_token"])
    clock.move(days=2)
    other = make_client(app, name="Other")
    other.exchange(browser.approve(other).code)
    purge(app)
    assert grants_of(app) == 2


def test_what_ended_goes_a_day_after_its_session(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    client.exchange(browser.approve(client).code)
    browser.open("/api/auth/sign-out")
    browser.submit(decision="sign_out")
    clock.move(hours=23)
    purge(app)
    assert rows(app)[:3] == [1, 1, 1]
    clock.move(hours=2)
    purge(app)
    assert rows(app)[:3] == [0, 0, 0]


def test_many_tokens_of_what_ended_go_by_themselves(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Not in one batch: others wait for it."""
    token = client.exchange(browser.approve(client).code).get_json()["refresh_token"]
    for _ in range(expired.TOKENS_AT_ONCE):
        token = client.refresh(token).get_json()["refresh_token"]
    client.revoke(token)
    browser.open("/api/auth/sign-out")
    browser.submit(decision="sign_out")
    clock.move(days=2)
    purge(app)
    assert rows(app)[:3] == [expired.TOKENS_AT_ONCE + 1, 1, 1]
    clock.move(days=30)
    purge(app)
    assert rows(app)[:3] == [0, 0, 0]


def test_a_live_offline_grant_stays(clock: Clock, app: Flask, browser: Browser, user: User) -> None:
    scope = "openid offline_access"
    client = make_client(app, scope=scope)
    token = client.exchange(browser.approve(client, scope=scope).code).get_json()["refresh_token"]
    clock.move(days=20)
    purge(app)
    assert rows(app)[3] == 0
    assert client.refresh(token).status_code == 200
