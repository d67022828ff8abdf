"""Browser sessions: lifetimes, "keep me signed in", and the cookie."""

from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso import clock as sso_clock
from sso.extensions import db
from sso.models import BrowserSession, Grant, LogoutDelivery, User
from sso.services import revocation
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import PASSWORD, make_client, make_user
from tests.support.second_factors import is_signed_in

ACCOUNT = f"{ORIGIN}{BASE}/account"


def signed_in(browser: Browser) -> bool:
    return browser.open(ACCOUNT).path.endswith("/account")


def cookies(browser: Browser) -> list[str]:
    """What was set by the answer to the sign-in form."""
    answers = [r for r in browser.history if r.request.method == "POST"]
    found = answers[-1].headers.getlist("Set-Cookie")
    return [one for one in found if not one.startswith("sso_known=")]


def test_it_ends_when_it_is_not_used(browser: Browser, user: User, clock: Clock) -> None:
    browser.sign_in()
    clock.move(days=13)
    assert signed_in(browser)
    clock.move(days=13)
    assert signed_in(browser)
    clock.move(days=15)
    assert not signed_in(browser)


def test_it_ends_however_much_it_is_used(browser: Browser, user: User, clock: Clock) -> None:
    browser.sign_in()
    for _ in range(17):
        clock.move(days=5)
        assert signed_in(browser)
    clock.move(days=5)
    assert not signed_in(browser)


def test_keep_me_signed_in_is_a_choice(app: Flask, user: User) -> None:
    for ticked in (False, True):
        browser = Browser(app)
        page = browser.open(f"{ORIGIN}{BASE}/sign-in")
        assert "remember" not in page.fields  # not ticked beforehand
        form = {"email": user.email, "password": PASSWORD}
        browser.submit(**form, **({"remember": "1"} if ticked else {}))
        (cookie,) = cookies(browser)
        assert ("Expires=" in cookie or "Max-Age=" in cookie) == ticked
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert f"Path={BASE}" in cookie


@pytest.mark.parametrize("remember", [True, False])
def test_signing_in_again_keeps_the_choice(
    browser: Browser, user: User, client: object, remember: bool
) -> None:
    from tests.support.actors import RelyingParty

    assert isinstance(client, RelyingParty)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    form = {"email": user.email, "password": PASSWORD}
    browser.submit(**form, **({"remember": "1"} if remember else {}))
    browser.authorize(client, prompt="login")
    browser.sign_in()
    assert any("Expires=" in one for one in cookies(browser)) == remember


# The cookie of a signed-in browser: prolonged with its session, and not signed for nothing.


def test_the_cookie_is_prolonged_with_the_session(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.approve(client)
    browser.authorize(client)
    assert "Set-Cookie" not in browser.history[-1].headers
    clock.move(minutes=2)
    browser.authorize(client)
    assert "Set-Cookie" in browser.history[-1].headers


def test_a_page_outside_of_its_path_leaves_it_alone(browser: Browser, user: User) -> None:
    """The browser does not show its cookie there, and would be signed out by another one."""
    browser.sign_in()
    browser.http.environ_base["HTTP_ACCEPT"] = "text/html"
    page = browser.open(f"{ORIGIN}/favicon.ico")
    assert page.status == 404
    assert "Set-Cookie" not in page.headers
    assert is_signed_in(browser)


@pytest.mark.parametrize("path", ["account", "account/activity"])
def test_a_page_that_is_opened_prolongs_the_session(
    app: Flask, clock: Clock, browser: Browser, user: User, path: str
) -> None:
    """Also in the database: the next request finds it there."""

    def ends() -> tuple[datetime, datetime]:
        with app.app_context():
            session = db.session.scalars(select(BrowserSession)).one()
            return session.last_seen_at, session.expires_at

    browser.sign_in()
    before = ends()
    clock.move(minutes=5)
    assert browser.open(f"{ORIGIN}{BASE}/{path}").status == 200
    for after, was in zip(ends(), before, strict=True):
        assert after - was >= timedelta(minutes=5)


# Sessions of one person: how many there may be, which are shown, and which end.


def leave_sessions(app: Flask, user: User, count: int, **more: object) -> None:
    """Live sessions, each used a minute before the one before it."""
    with app.app_context():
        now = sso_clock.now()
        for number in range(count):
            seen = now - timedelta(minutes=number + 1)
            values = {"created_at": seen, "expires_at": now + timedelta(days=9), **more}
            db.session.add(
                BrowserSession(
                    digest=f"{user.id}-{number}-{more}"[:80], user_id=user.id, auth_time=seen,
                    last_seen_at=seen, amr="pwd", acr="1", **values,
                )
            )  # fmt: skip
        db.session.commit()


def live(app: Flask, user: User) -> list[str]:
    with app.app_context():
        return list(
            db.session.scalars(
                select(BrowserSession.digest).where(
                    BrowserSession.user_id == user.id, BrowserSession.ended_at.is_(None)
                )
            )
        )


@pytest.mark.slow
@pytest.mark.parametrize(("there", "left"), [(48, 49), (49, 50), (50, 50), (80, 50)])
def test_the_oldest_go_beyond_the_most(
    app: Flask, clock: Clock, user: User, there: int, left: int
) -> None:
    """Of this person alone; those used last stay."""
    erin = make_user(app, "erin@example.com", name="Erin")
    leave_sessions(app, user, there)
    leave_sessions(app, erin, 30)
    browser = Browser(app)
    browser.sign_in()
    found = live(app, user)
    assert len(found) == left
    assert is_signed_in(browser)
    stay = {f"{user.id}-{number}-{{}}" for number in range(left - 1)}
    assert stay <= set(found)
    assert len(live(app, erin)) == 30


@pytest.mark.slow
def test_those_that_ended_do_not_count(app: Flask, clock: Clock, user: User) -> None:
    leave_sessions(app, user, 30)
    leave_sessions(app, user, 30, ended_at=sso_clock.now())
    Browser(app).sign_in()
    assert len(live(app, user)) == 31


@pytest.mark.slow
def test_what_is_shown(app: Flask, clock: Clock, browser: Browser, user: User) -> None:
    """Live ones, of this person; and the operator sees the same."""
    erin = make_user(app, "erin@example.com", name="Erin")
    leave_sessions(app, user, 1, browser="Firefox of mine", address="198.51.100.1")
    leave_sessions(app, user, 1, address="198.51.100.2", ended_at=sso_clock.now())
    leave_sessions(app, user, 1, address="198.51.100.3", expires_at=sso_clock.now())
    leave_sessions(app, erin, 1, address="198.51.100.4")
    browser.sign_in()
    html = browser.open(ACCOUNT).html
    shown = app.test_cli_runner().invoke(args=["user", "sessions", user.email]).output
    for text in (html, shown):
        assert [f"198.51.100.{number}" in text for number in (1, 2, 3, 4)] == [
            True, False, False, False,
        ]  # fmt: skip


@pytest.mark.slow
def test_a_session_that_ended_before_ends_no_more(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Nobody is told twice, and the moment and the reason of the first end stay."""
    client = make_client(
        app, scope="openid", backchannel_logout_uri="https://books.example/backchannel"
    )
    client.exchange(browser.approve(client, scope="openid").code)
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")

    def state() -> list[object]:
        with app.app_context():
            ended = db.session.scalars(select(BrowserSession.ended_at)).all()
            grants = db.session.execute(select(Grant.ended_at, Grant.end_reason)).all()
            told = db.session.scalar(select(func.count()).select_from(LogoutDelivery))
            return [*ended, *map(tuple, grants), told]

    before = state()
    assert before[0] is not None
    assert before[-1] == 1
    with app.app_context():
        db.session.execute(update(LogoutDelivery).values(next_attempt_at=None))  # it was delivered
        db.session.commit()
    clock.move(minutes=5)
    with app.app_context():
        assert revocation.sessions_of_user(user.id, "operator") == 0
        db.session.commit()
    assert state() == before


def test_somebody_else_signs_in(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    """That ends the session before, and what it gave; signing in again does not."""
    token = client.exchange(browser.approve(client).code).get_json()["access_token"]
    elsewhere = Browser(app)
    elsewhere.sign_in()
    for email, live in ((user.email, 2), (make_user(app, "erin@example.com").email, 1)):
        browser.open(f"{ORIGIN}{BASE}/sign-in")
        browser.sign_in(email)
        with app.app_context():
            of_user = BrowserSession.user_id == user.id, BrowserSession.ended_at.is_(None)
            count = select(func.count()).select_from(BrowserSession).where(*of_user)
            assert db.session.scalar(count) == live
        assert client.introspect(token).get_json()["active"] is (live == 2)
    assert signed_in(elsewhere)


@pytest.mark.slow
def test_the_session_that_expired_is_nobodys(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """At its last second it is good; a second later it is not, at any door."""
    browser.approve(client)
    clock.move(days=14, seconds=-2)
    form = browser.authorize(client, prompt="none")
    assert form.code
    with app.app_context():
        end = db.session.scalars(select(BrowserSession.expires_at)).one()
    clock.time = end - timedelta(milliseconds=1)
    assert browser.authorize(client, prompt="none").code  # and prolongs it
    with app.app_context():
        end = db.session.scalars(select(BrowserSession.expires_at)).one()
    clock.time = end
    assert browser.authorize(client, prompt="none").error == "login_required"
    assert not is_signed_in(browser)


@pytest.mark.slow
def test_sign_in_again_counts_from_then(clock: Clock, browser: Browser, user: User) -> None:
    """The absolute end is ninety days after the last sign-in, not after the first."""
    browser.sign_in()
    for _ in range(8):
        clock.move(days=10)
        assert is_signed_in(browser)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in()
    for _ in range(8):
        clock.move(days=10)
        assert is_signed_in(browser)
    clock.move(days=11)
    assert not is_signed_in(browser)


def last_active(app: Flask) -> tuple[datetime | None, int, datetime]:
    with app.app_context():
        user = db.session.scalars(select(User)).one()
        return user.last_active_at, user.version, user.updated_at


def test_the_day_of_the_last_use(app: Flask, browser: Browser, user: User, clock: Clock) -> None:
    clock.stand_still()
    never, *unchanged = last_active(app)
    assert never is None
    clock.time = signed_in_at = datetime(2026, 12, 1, 23, 50, tzinfo=UTC)
    browser.sign_in()
    assert last_active(app) == (signed_in_at, *unchanged)
    clock.move(seconds=599)  # the same day
    assert signed_in(browser)
    assert last_active(app) == (signed_in_at, *unchanged)
    clock.move(seconds=61)
    assert signed_in(browser)
    assert last_active(app) == (datetime(2026, 12, 2, 0, 1, tzinfo=UTC), *unchanged)


def test_a_session_that_answers_for_an_application_counts(
    app: Flask, browser: Browser, user: User, clock: Clock
) -> None:
    clock.stand_still()
    rp = make_client(app)
    browser.approve(rp)
    before = last_active(app)[0]
    clock.move(days=1)
    assert browser.authorize(rp).code
    assert before
    assert last_active(app)[0] == before + timedelta(days=1)
