"""Purging leaves what somebody still needs: row by row, with what would go at the same age."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import event, func, null, select, update

from sso import clock as sso_clock
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import (
    AuthorizationCode,
    BrowserSession,
    Client,
    Grant,
    KeyState,
    LogoutDelivery,
    Mail,
    MailToken,
    PushedRequest,
    SigningKey,
    Token,
    User,
)
from sso.models.clients import DOCUMENT, OPEN
from sso.store import redemption
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client

pytestmark = pytest.mark.slow

SCOPE = "openid email"


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, scope=SCOPE, backchannel_logout_uri="https://books.example/backchannel")


def purge(app: Flask) -> None:
    with app.app_context():
        upkeep.purge()


def count(app: Flask, table: Any) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(table)) or 0


def use_daily(browser: Browser, clock: Clock, days: int) -> None:
    for _ in range(days):
        clock.move(days=1)
        assert browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/account")


@pytest.fixture
def old_grant(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> Browser:
    """A grant all of whose tokens are gone, in a session that is still used."""
    client.exchange(browser.approve(client, scope=SCOPE).code)
    use_daily(browser, clock, 35)
    purge(app)
    assert [count(app, table) for table in (Token, AuthorizationCode, Grant)] == [0, 0, 1]
    return browser


def test_a_grant_stays_while_its_session_lives(app: Flask, old_grant: Browser) -> None:
    """The client is owed a logout token, however long ago it was."""
    old_grant.open(f"{ORIGIN}{BASE}/sign-out")
    old_grant.submit(decision="sign_out")
    assert count(app, LogoutDelivery) == 1
    purge(app)
    assert count(app, Grant) == 0


def test_and_goes_when_its_session_has_expired(
    app: Flask, clock: Clock, old_grant: Browser
) -> None:
    clock.move(days=14, seconds=1)  # the session is not purged yet
    purge(app)
    assert [count(app, table) for table in (BrowserSession, Grant)] == [1, 0]


def test_a_grant_stays_while_it_has_a_token_or_a_code(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    client.exchange(browser.approve(client, scope=SCOPE).code)
    browser.authorize(client, scope=SCOPE)  # a code that is never redeemed
    clock.move(days=14, minutes=1)
    purge(app)
    # The code that was not redeemed went soon after its end; its grant with it.
    assert [count(app, table) for table in (Token, AuthorizationCode, Grant)] == [1, 1, 1]


def test_a_grant_stays_for_each_of_them_alone(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """The row of a grant takes all that hangs on it along."""
    browser.approve(client, scope=SCOPE)
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    clock.move(minutes=9)  # a code may be set to live for ten
    purge(app)
    assert [count(app, table) for table in (AuthorizationCode, Grant)] == [1, 1]
    clock.move(minutes=4)
    purge(app)
    assert [count(app, table) for table in (AuthorizationCode, Grant)] == [0, 0]
    client.exchange(browser.approve(client, scope=SCOPE).code)
    with app.app_context():
        db.session.query(AuthorizationCode).delete()
        db.session.commit()
    clock.move(days=15, minutes=1)
    purge(app)
    assert [count(app, table) for table in (BrowserSession, Token, Grant)] == [0, 1, 1]


@pytest.mark.parametrize(("minutes", "left"), [(9, 1), (13, 0)])
def test_a_code_that_nobody_redeemed_goes_soon(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User,
    minutes: int, left: int,
) -> None:  # fmt: skip
    browser.approve(client, scope=SCOPE)
    clock.move(minutes=minutes)
    purge(app)
    assert count(app, AuthorizationCode) == left


def test_a_code_stays_while_what_it_gave_may_live(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Else its reuse would end nothing."""
    code = browser.approve(client, scope=SCOPE).code
    tokens = client.exchange(code).get_json()
    clock.move(days=3)
    purge(app)
    assert client.exchange(code).status_code == 400
    assert client.refresh(tokens["refresh_token"]).status_code == 400


def test_a_token_goes_when_both_its_tokens_have_ended(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    client.exchange(browser.approve(client, scope=SCOPE).code)
    now = clock.time

    def set_ends(access: datetime, refresh: datetime) -> None:
        with app.app_context():
            db.session.execute(update(Token).values(expires_at=access, refresh_expires_at=refresh))
            db.session.commit()

    late, soon = now - timedelta(days=2), now + timedelta(days=1)
    just = now - timedelta(hours=23)
    ends = ((soon, late), (late, soon), (just, late), (late, just))
    for access, refresh, left in (*((*one, 1) for one in ends), (late, late, 0)):
        set_ends(access, refresh)
        purge(app)
        assert count(app, Token) == left


@pytest.mark.parametrize(("hours", "left"), [(23, 1), (25, 0)])
def test_a_session_goes_a_day_after_its_end(
    app: Flask, clock: Clock, browser: Browser, user: User, hours: int, left: int
) -> None:
    browser.sign_in()
    clock.move(days=14, hours=hours)
    purge(app)
    assert count(app, BrowserSession) == left


def test_what_is_still_to_be_delivered_stays(
    app: Flask, clock: Clock, client: RelyingParty, user: User
) -> None:
    now = clock.time

    def delivery(due: datetime | None) -> LogoutDelivery:
        return LogoutDelivery(
            client_id=client.client_id, sub="x", sid="y", created_at=now,
            next_attempt_at=due or null(),
        )  # fmt: skip

    def mail(attempts: int, due: datetime | None, delivered: datetime | None) -> Mail:
        return Mail(
            kind="reset", address="x@example.com", details={}, created_at=now, attempts=attempts,
            next_attempt_at=due or null(), delivered_at=delivered,
        )  # fmt: skip

    with app.app_context():
        db.session.query(Mail).delete()
        db.session.add_all([delivery(now), delivery(None)])
        in_vain, delivered, given_up = mail(1, None, None), mail(1, None, now), mail(5, None, None)
        db.session.add_all([mail(1, now, None), in_vain, delivered, given_up])
        db.session.commit()
    clock.move(days=2)
    purge(app)
    # Nobody has the address that a stranger typed: the row tells nothing that anybody looks up.
    assert [count(app, table) for table in (LogoutDelivery, Mail)] == [2, 3]
    clock.move(days=6)
    purge(app)
    assert [count(app, table) for table in (LogoutDelivery, Mail)] == [1, 1]


@pytest.mark.parametrize(
    ("late", "stays"), [(-1, True), (0, True), (59, True), (60, True), (61, False)]
)
def test_a_pushed_request_stays_while_its_page_is_open(
    app: Flask, clock: Clock, client: RelyingParty, late: int, stays: bool
) -> None:
    """Until the page could not be answered any more, by the clock of any node."""
    clock.stand_still()
    with app.app_context():
        now, on = sso_clock.now(), db.session.connection()
        redemption.add_pushed(on, "sha256:1", client.client_id, "{}", now)
        redemption.let_pushed_wait(on, "sha256:1", now)
        db.session.commit()
    clock.move(hours=1, seconds=late)
    purge(app)
    assert count(app, PushedRequest) == stays


@pytest.mark.parametrize("registration", [DOCUMENT, OPEN])
def test_only_agents_that_nobody_uses_go(
    app: Flask, clock: Clock, browser: Browser, user: User, registration: str
) -> None:
    """What an operator registered stays for ever; and so does what one disabled."""
    clock.stand_still()
    used = make_client(app, name="used")
    agents = [used.client_id, *(make_client(app, name=name).client_id for name in ("off", "idle"))]
    for name in ("application", "disabled application"):
        make_client(app, name=name, disabled=name.startswith("disabled"))
    used.exchange(browser.approve(used).code)
    with app.app_context():
        is_agent = Client.client_id.in_(agents)
        db.session.execute(update(Client).where(is_agent).values(registration=registration))
        is_off = Client.client_id == agents[1]
        db.session.execute(update(Client).where(is_off).values(disabled_at=sso_clock.now()))
        db.session.commit()
    began = clock.time
    nobody: set[str] = set()
    for late, gone in ((0, nobody), (1, {"idle"})):
        clock.time = began + timedelta(days=30, seconds=late)
        purge(app)
        with app.app_context():
            names = {client.name for client in db.session.scalars(select(Client))}
        every = {"used", "off", "idle", "application", "disabled application"}
        assert every - names == gone


def test_a_retired_key_is_kept_to_be_looked_up(app: Flask, clock: Clock) -> None:
    with app.app_context():
        before = count(app, SigningKey)
        row = db.session.query(SigningKey).filter_by(state=KeyState.ACTIVE).first()
        assert row is not None
        row.state, row.retired_at = KeyState.RETIRED, sso_clock.now()
        db.session.commit()
    clock.move(days=89)
    purge(app)
    assert count(app, SigningKey) == before
    clock.move(days=2)
    purge(app)
    assert count(app, SigningKey) == before - 1


@pytest.mark.parametrize(("hours", "left"), [(24, 1), (26, 0)])
def test_a_mailed_link_goes_a_day_after_its_end(
    app: Flask, clock: Clock, user: User, hours: int, left: int
) -> None:
    with app.app_context():
        db.session.add(
            MailToken(
                digest="x", purpose="reset", user_id=user.id, address=user.email, bound_to="y",
                created_at=sso_clock.now(), expires_at=sso_clock.now() + timedelta(hours=1),
            )
        )  # fmt: skip
        db.session.commit()
    clock.move(hours=hours)
    purge(app)
    assert count(app, MailToken) == left


def test_what_is_used_again_while_the_purge_looks_stays(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """The condition is asked again by the statement that deletes."""
    with app.app_context():
        db.session.query(Mail).delete()
        mail = Mail(
            kind="reset", address="x@example.com", details={}, created_at=sso_clock.now(),
            attempts=5, next_attempt_at=null(),
        )  # fmt: skip
        db.session.add(mail)
        db.session.commit()
        engine = db.engine
    clock.move(days=9)
    done: list[int] = []

    def note(_c: Any, _cur: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE FROM mails") and not done:
            done.append(1)
            with engine.begin() as other:
                other.execute(update(Mail).values(next_attempt_at=sso_clock.now()))

    event.listen(engine, "before_cursor_execute", note)
    try:
        purge(app)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert done
    assert count(app, Mail) == 1
