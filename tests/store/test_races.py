"""Single use under real concurrency: many connections at the same instant."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from threading import Barrier, BrokenBarrierError, Event
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso import audit, clock
from sso.crypto import keys, passwords
from sso.endpoints import browser_session
from sso.extensions import db
from sso.jobs.worker import rotate_aged_keys
from sso.models import BrowserSession, Consent, Grant, Mail, SigningKey, Token, TotpSecret, User
from sso.services import credentials, revocation
from sso.store import grants, users
from sso.store import keys as stored_keys
from tests.store.test_agent_races import overlapping
from tests.support.actors import Browser, RelyingParty

DAY = timedelta(days=1)
on_postgresql = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


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
    monkeypatch.setattr(passwords, "AT_ONCE", 10)

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
            return rotate_aged_keys()

    assert sorted(at_once(4, work)) == [0, 0, 0, len(keys.ALGORITHMS)]
    with app.app_context():
        states = Counter(key.state for key in stored_keys.every_signing_key())
    assert set(states.values()) == {len(keys.ALGORITHMS)}


def test_no_grant_outlives_its_session(app: Flask, client: RelyingParty, user: User) -> None:
    """However authorizations and ends interleave: no lock is waited for in a circle, either."""
    browsers = [Browser(app) for _ in range(4)]
    for browser in browsers:
        browser.approve(client)
    over = Event()
    left: list[int] = []

    def authorize(browser: Browser) -> int:
        codes = 0
        while not (over.is_set() and codes):  # on a busy machine the first one takes long
            if "code" in browser.authorize(client).parameters:
                codes += 1
            else:
                browser.approve(client)
        return codes

    def end() -> None:
        for _ in range(8):
            over.wait(0.2)
            with app.app_context():
                # Old enough for the next request to note that it and its user were active.
                db.session.execute(update(BrowserSession).values(last_seen_at=clock.now() - DAY))
                db.session.commit()
                assert users.lock(user.id)
                revocation.everything_of_user(user.id, "test")
                db.session.commit()
                left.append(
                    db.session.scalar(
                        select(func.count())
                        .select_from(Grant)
                        .join(Grant.session)
                        .where(Grant.ended_at.is_(None), BrowserSession.ended_at.is_not(None))
                    )
                    or 0
                )
        over.set()

    with ThreadPoolExecutor(5) as pool:
        ending = pool.submit(end)
        codes = list(pool.map(authorize, browsers))
    ending.result()
    assert left == [0] * 8
    assert all(codes)


@pytest.mark.parametrize("later", [timedelta(minutes=3), timedelta(days=1)])
def test_two_tabs_after_lunch(
    later: timedelta,
    app: Flask,
    client: RelyingParty,
    user: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both get a code, and note their visit of one session, without waiting for each other. On the
    next day they also note that the user is active.
    """
    one, two = Browser(app), Browser(app)
    one.approve(client)
    cookies, copies = one.http._cookies, two.http._cookies
    assert cookies is not None
    assert copies is not None
    for cookie in cookies.values():
        copies[cookie._storage_key] = copy(cookie)
    monkeypatch.setattr(clock, "source", lambda: datetime.now(UTC) + later)
    both, prolong, met = Barrier(2), browser_session.prolong, []

    def meet(*session: Any) -> bool:
        met.append(session)
        with suppress(BrokenBarrierError):  # on locks that exclude each other, they can't
            both.wait(1)
        return prolong(*session)

    monkeypatch.setattr(browser_session, "prolong", meet)
    with ThreadPoolExecutor(2) as pool:
        pages = list(pool.map(lambda tab: tab.authorize(client), (one, two)))
    assert ["code" in page.parameters for page in pages] == [True, True]
    assert len(met) == 2


def test_old_and_new_refresh_tokens_at_once(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    """A retry beside the use of the successor: either is first, and nothing is a 500."""
    for _ in range(3):
        old = client.exchange(browser.approve(client).code).get_json()["refresh_token"]
        new = client.refresh(old).get_json()["refresh_token"]
        both = iter([old, new] * 8)
        answers = at_once(16, lambda: client.refresh(next(both)))  # noqa: B023
        assert {answer.status_code for answer in answers} <= {200, 400}
        errors = {a.get_json()["error"] for a in answers if a.status_code == 400}
        assert errors <= {"invalid_grant"}
        given = {a.get_json()["refresh_token"] for a in answers if a.status_code == 200}
        assert len(given - {new}) <= 1, "one successor each"
        # Whatever came first: the next use of the old one ends them all.
        client.refresh(new)
        assert client.refresh(old).get_json()["error"] == "invalid_grant"
        assert all(client.refresh(token).status_code == 400 for token in given)


@on_postgresql
def test_consents_of_two_tabs_are_all_kept(
    app: Flask, client: RelyingParty, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second reads what the first has written; without the lock, both would read the same."""
    names, both, merged = iter(("openid", "profile", "email")), Barrier(2), grants._merged

    def allow() -> None:
        with app.app_context():
            grants.remember_consent(user.id, client.client_id, [next(names)])
            db.session.commit()

    def meet(*scopes: Any) -> str:
        with suppress(BrokenBarrierError):
            both.wait(1)
        return merged(*scopes)

    allow()
    monkeypatch.setattr(grants, "_merged", meet)
    at_once(2, allow)
    with app.app_context():
        (scope,) = db.session.scalars(select(Consent.scope))
        assert set(scope.split()) == {"openid", "profile", "email"}


@on_postgresql
def test_a_factor_that_is_added_while_all_are_reset(app: Flask, user: User) -> None:
    """It goes with the others, and is counted, so that the user hears of it."""
    removed = []

    def add() -> None:
        assert users.lock(user.id)
        db.session.add(TotpSecret(user_id=user.id, sealed_secret="x"))
        db.session.flush()

    def reset() -> None:
        loaded = users.find(user.id)
        assert loaded
        removed.append(credentials.reset_factors(audit.SYSTEM, loaded))

    overlapping(app, add, reset)
    with app.app_context():
        assert db.session.scalars(select(TotpSecret)).all() == []
        assert "factor_removed" in db.session.scalars(select(Mail.kind)).all()
    assert removed == [1]
