"""Codes that are never redeemed: however many one person has made, few are kept."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Event
from time import sleep
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Connection, Update, func, select, update

from sso import audit
from sso import clock as sso_clock
from sso.crypto import secrets
from sso.database import dialects
from sso.extensions import db
from sso.models import (
    AuthorizationCode,
    BrowserSession,
    Client,
    Consent,
    Grant,
    Identity,
    User,
)
from sso.services import revocation, transaction
from sso.store import approvals, grants, redemption
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


# What a decision was based on is asked for once more when it is stored.


class Decided:
    """A decision of somebody who is signed in and has consented, to be stored."""

    def __init__(self, app: Flask, browser: Browser, client: RelyingParty) -> None:
        browser.approve(client)
        self.app = app
        with app.app_context():
            grant = db.session.scalars(select(Grant)).one()
            user = db.session.get_one(User, grant.user_id)
            consent = db.session.scalars(select(Consent)).one()
            registered = db.session.scalars(
                select(Client).where(Client.client_id == client.client_id)
            ).one()
            self.user_id = user.id
            self.seen = approvals.Seen(registered.updated_at, user.updated_at, consent.updated_at)
            names = ("user_id", "client_id", "session_id", "sid", "scope", "auth_time", "amr",
                     "acr", "claims")  # fmt: skip
            self.columns = {name: getattr(grant, name) for name in names}

    def stored(self, seen: approvals.Seen | None = None) -> list[bool]:
        """Whether each function stores it; undone at the end."""
        seen = seen or self.seen
        now = sso_clock.now()
        code = approvals.NewCode("sha256:x", "https://a.example", None, None, None, False, now)
        with self.app.app_context():
            on = db.session.connection()
            stored = [
                approvals.add(on, seen, code, codes_since=now, **self.columns),
                approvals.add_without_code(on, seen, **self.columns) is not None,
            ]
            if seen.consent:
                stored.append(approvals.add_for_device(on, seen, **self.columns) is not None)
            if dialects.is_postgresql():
                redemption.add_pushed(on, "sha256:p", self.columns["client_id"], "{}", now)
                stored.append(self.store_and_use(on, "sha256:p", seen))
            db.session.rollback()
        return stored

    def store_and_use(
        self, on: Connection, digest: str, seen: approvals.Seen | None = None
    ) -> bool:
        """Store it together with the use of a pushed request."""
        now = sso_clock.now()
        code = approvals.NewCode(digest, "https://a.example", None, None, None, False, now)
        use = approvals.PushedUse(digest, "{}")
        return approvals.add_and_use_pushed(
            on, seen or self.seen, code, use, codes_since=now, **self.columns
        )

    def pushed(self, digest: str = "sha256:p") -> None:
        """Store a pushed request."""
        with self.app.app_context(), transaction.Transaction() as changes:
            client_id = self.columns["client_id"]
            redemption.add_pushed(changes.connection, digest, client_id, "{}", sso_clock.now())
            changes.commit()

    def counts(self) -> tuple[int, int]:
        """Return how many grants and codes are stored."""
        with self.app.app_context():
            models = Grant, AuthorizationCode
            grants, codes = (
                db.session.scalar(select(func.count()).select_from(model)) or 0 for model in models
            )
            return grants, codes


@pytest.fixture
def decided(app: Flask, browser: Browser, client: RelyingParty, user: User) -> Decided:
    return Decided(app, browser, client)


MOMENT = timedelta(seconds=1)
# Some keep `updated_at`: each condition counts by itself.
CHANGES: dict[str, Callable[[], Update]] = {
    "the client": lambda: update(Client).values(updated_at=sso_clock.now() + MOMENT),
    "the client, disabled": lambda: update(Client).values(
        disabled_at=sso_clock.now(), updated_at=Client.updated_at
    ),
    "the user": lambda: update(User).values(updated_at=sso_clock.now() + MOMENT),
    "the user, disabled": lambda: update(User).values(
        disabled_at=sso_clock.now(), updated_at=User.updated_at
    ),
    "the user, ended": lambda: update(User).values(
        ends_at=sso_clock.now(), updated_at=User.updated_at
    ),
    "the session": lambda: update(BrowserSession).values(ended_at=sso_clock.now()),
    "the consent": lambda: update(Consent).values(updated_at=sso_clock.now() + MOMENT),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_seen_has_changed(decided: Decided, clock: Clock, change: str) -> None:
    without_consent = replace(decided.seen, consent=None)
    assert all(decided.stored())
    assert all(decided.stored(without_consent))
    with decided.app.app_context():
        db.session.execute(CHANGES[change]())
        db.session.commit()
    assert not any(decided.stored())
    assert any(decided.stored(without_consent)) is (change == "the consent")


@pytest.mark.parametrize("column", ["issuer", "subject", "user_id"])
def test_another_account_at_another_server(decided: Decided, clock: Clock, column: str) -> None:
    """An assertion is about one account, of one user: neither a namesake's nor a former one."""
    erin = make_user(decided.app, "erin@example.com")
    linked = {"provider": "corp", "issuer": "https://corp.example", "subject": "1"}
    columns = {**decided.columns, "id": uuid4(), "created_at": sso_clock.now()}
    with decided.app.app_context():
        on = db.session.connection()
        identity = Identity(user_id=decided.user_id, **linked)
        db.session.add(identity)
        db.session.flush()
        assert approvals.add_by_assertion(
            on, decided.seen, linked["issuer"], linked["subject"], **columns
        )
        other = {"issuer": "https://evil.example", "subject": "2", "user_id": erin.id}[column]
        setattr(identity, column, other)
        db.session.flush()
        columns["id"] = uuid4()
        assert not approvals.add_by_assertion(
            on, decided.seen, linked["issuer"], linked["subject"], **columns
        )


@pytest.mark.parametrize("count", [0, MOST - 2, MOST - 1])
def test_how_many_are_not_counted_again(
    app: Flask, user: User, clock: Clock, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """No more than there is room for, whatever a process may remember."""
    flood(app, user, count)
    allowed: list[int] = []
    monkeypatch.setattr(approvals._UNCOUNTED, "allow", lambda _, most: allowed.append(most))
    with app.app_context():
        since = sso_clock.now() - timedelta(minutes=1)
        assert approvals.drop_oldest_unredeemed(db.session.connection(), user.id, since)
        db.session.rollback()
    assert allowed == [min(approvals._AT_ONCE, MOST - count - 1)]


# A pushed request is used together with what it gives, or neither counts.


@pytest.fixture
def on_postgresql(decided: Decided) -> Decided:
    with decided.app.app_context():
        if not dialects.is_postgresql():
            pytest.skip("SQLite needs several statements")
    return decided


def test_sqlite_needs_several_statements(decided: Decided) -> None:
    decided.pushed()
    with decided.app.app_context(), transaction.Transaction() as changes:
        is_stored = decided.store_and_use(changes.connection, "sha256:p")
        assert is_stored == dialects.is_postgresql()


def test_one_of_many_answers_to_a_pushed_request(on_postgresql: Decided) -> None:
    decided = on_postgresql
    decided.pushed()
    before = decided.counts()

    def answer() -> bool:
        with decided.app.app_context(), transaction.Transaction() as changes:
            return decided.store_and_use(changes.connection, "sha256:p")

    assert at_once(8, answer).count(True) == 1
    assert decided.counts() == (before[0] + 1, before[1] + 1)


def test_an_answer_while_another_tab_shows_a_page(on_postgresql: Decided) -> None:
    """The answer waits for the tab, and finds the pushed request changed, but unused."""
    decided, now = on_postgresql, sso_clock.now()
    decided.pushed()
    before = decided.counts()

    def answer() -> bool:
        with decided.app.app_context(), transaction.Transaction() as changes:
            return decided.store_and_use(changes.connection, "sha256:p")

    with ThreadPoolExecutor(1) as pool:
        with decided.app.app_context(), transaction.Transaction() as tab:
            redemption.let_pushed_wait(tab.connection, "sha256:p", now)
            answering = pool.submit(answer)
            sleep(0.3)
            assert not answering.done()
            tab.commit()
        assert answering.result(5)
    assert decided.counts() == (before[0] + 1, before[1] + 1)
    with decided.app.app_context(), transaction.Transaction() as changes:
        pushed = redemption.find_pushed(changes.connection, "sha256:p")
        assert pushed
        assert pushed.used_at


def test_an_answer_after_another_one_was_undone(on_postgresql: Decided) -> None:
    decided, now = on_postgresql, sso_clock.now()
    decided.pushed()

    def answer() -> bool:
        with decided.app.app_context(), transaction.Transaction() as changes:
            return decided.store_and_use(changes.connection, "sha256:p")

    with ThreadPoolExecutor(1) as pool:
        with decided.app.app_context(), transaction.Transaction() as other:
            assert redemption.use_pushed(other.connection, "sha256:p", now, "{}")
            answering = pool.submit(answer)
            sleep(0.3)
            assert not answering.done()
        assert answering.result(5)
    assert not answer()
