"""What is owed, to whom, how often, and in which order."""

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select, update

from sso import clock as sso_clock
from sso.extensions import db
from sso.models import Grant, LogoutDelivery, Mail, User
from sso.store import outbox
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client, make_user

SCOPE = "openid email offline_access"


def told(app: Flask, client: RelyingParty | None = None) -> list[tuple[str, bool]]:
    """By whose `sid`, and whether it still waits."""
    with app.app_context():
        statement = select(LogoutDelivery).order_by(LogoutDelivery.created_at)
        found = db.session.scalars(statement).all()
        return [
            (one.sid, one.next_attempt_at is not None)
            for one in found
            if client is None or one.client_id == client.client_id
        ]


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, scope=SCOPE, backchannel_logout_uri="https://books.example/out")


def owe(app: Flask) -> None:
    with app.app_context():
        outbox.enqueue_logouts(Grant.id.is_not(None))
        db.session.commit()


def deliver(app: Flask) -> None:
    with app.app_context():
        db.session.execute(update(LogoutDelivery).values(next_attempt_at=None))
        db.session.commit()


def test_one_for_each_client_and_session(
    app: Flask, clock: Clock, client: RelyingParty, user: User
) -> None:
    films = make_client(
        app, name="Films", redirect_uris=["https://films.example/"], scope=SCOPE,
        backchannel_logout_uri="https://films.example/out",
    )  # fmt: skip
    silent = make_client(app, name="Silent", redirect_uris=["https://silent.example/"])
    here, there = Browser(app), Browser(app)
    for browser in (here, there):
        for _ in range(2):  # two grants of one session are told of once
            browser.approve(client, scope="openid")
    here.approve(films, scope="openid")
    here.approve(silent, scope="openid")
    owe(app)
    assert (len(told(app)), len(told(app, client)), len(told(app, films))) == (3, 2, 1)
    owe(app)  # nor twice while it waits
    assert len(told(app)) == 3
    with app.app_context():  # one of them is delivered
        row = db.session.scalars(
            select(LogoutDelivery).where(LogoutDelivery.client_id == films.client_id)
        ).one()
        db.session.execute(
            update(LogoutDelivery).where(LogoutDelivery.id == row.id).values(next_attempt_at=None)
        )
        db.session.commit()
    owe(app)
    assert (len(told(app, client)), len(told(app, films))) == (2, 2)


@pytest.mark.parametrize("disabled", [True, False])
def test_a_disabled_client_is_told_nothing(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User, disabled: bool
) -> None:
    browser.approve(client, scope=SCOPE)
    if disabled:
        runner = app.test_cli_runner()
        assert runner.invoke(args=["client", "disable", client.client_id]).exit_code == 0
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    assert len(told(app)) == (0 if disabled else 1)


def test_signing_out_again_after_a_delivery(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    for _ in range(2):
        browser.approve(client, scope="openid")
        browser.open(f"{ORIGIN}{BASE}/sign-out")
        browser.submit(decision="sign_out")
        deliver(app)
    assert len({sid for sid, _ in told(app)}) == 2


def test_another_session_while_the_first_delivery_waits(
    app: Flask, clock: Clock, client: RelyingParty, user: User
) -> None:
    browsers = [Browser(app), Browser(app)]
    for browser in browsers:
        browser.approve(client, scope="openid")
    for number, browser in enumerate(browsers, 1):
        browser.open(f"{ORIGIN}{BASE}/sign-out")
        browser.submit(decision="sign_out")
        assert len({sid for sid, waits in told(app) if waits}) == number


def add(address: str, kind: str) -> bool:
    return outbox.add_mail(Mail(kind=kind, address=address, details={}))


def test_five_mails_an_hour_of_a_kind_to_an_address(app: Flask, clock: Clock) -> None:
    with app.app_context():
        assert [add("dana@example.com", "reset") for _ in range(7)] == [True] * 5 + [False] * 2
        assert add("dana@example.com", "verify")  # another kind
        assert add("erin@example.com", "reset")  # another address
        db.session.commit()
        clock.move(minutes=59)
        assert not add("dana@example.com", "reset")
        clock.move(minutes=2)
        assert add("dana@example.com", "reset")


def mail(number: int, due: Any, attempts: int = 0) -> Mail:
    return Mail(
        kind="reset", address=f"user{number}@example.com", details={}, attempts=attempts,
        next_attempt_at=due,
    )  # fmt: skip


def test_what_is_due_and_in_which_order(app: Flask, clock: Clock) -> None:
    now = clock.time
    with app.app_context():
        db.session.query(Mail).delete()
        db.session.add_all(
            [
                mail(1, now - timedelta(minutes=9), attempts=3),
                mail(2, now - timedelta(minutes=2)),
                mail(3, now - timedelta(minutes=3)),
                mail(4, now + timedelta(minutes=1)),
            ]
        )
        db.session.commit()
        until = now + timedelta(minutes=5)

        def claim(limit: int) -> list[str]:
            found = outbox.MAILS.claim(limit, until)
            assert all(one.attempts >= 1 for one in found)
            db.session.commit()
            return [one.address[:5] for one in found]

        # New ones first: those that were refused before hold up no other.
        assert claim(1) == ["user3"]
        assert claim(1) == ["user2"]
        assert claim(9) == ["user1"]
        assert claim(9) == []  # another worker has them
        clock.move(minutes=2)
        assert claim(9) == ["user4"]
        clock.move(minutes=4)
        assert sorted(claim(9)) == ["user1", "user2", "user3", "user4"]  # it died


def test_what_was_not_tried_counts_as_no_attempt(app: Flask, clock: Clock) -> None:
    with app.app_context():
        db.session.query(Mail).delete()
        db.session.add_all([mail(1, clock.time), mail(2, clock.time)])
        db.session.commit()
        first, second = outbox.MAILS.claim(9, sso_clock.now() + timedelta(minutes=5))
        outbox.MAILS.release(first.id)
        outbox.MAILS.mark_sent(second.id)
        db.session.commit()
        rows = {one.id: one for one in db.session.scalars(select(Mail))}
        db.session.refresh(rows[first.id])
        db.session.refresh(rows[second.id])
        assert (rows[first.id].attempts, rows[second.id].attempts) == (0, 1)
        assert rows[first.id].delivered_at is None
        assert rows[second.id].delivered_at is not None
        assert outbox.MAILS.waiting()[0] == 1


def test_how_many_wait_for_a_client(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    other = make_client(
        app, name="Films", redirect_uris=["https://films.example/"], scope=SCOPE,
        backchannel_logout_uri="https://films.example/out",
    )  # fmt: skip
    make_user(app, "erin@example.com", name="Erin")
    browser.approve(client, scope="openid")
    owe(app)
    with app.app_context():
        found = [outbox.logouts_waiting_for(one.client_id) for one in (client, other)]
    assert found == [1, 0]
    deliver(app)
    with app.app_context():
        assert outbox.logouts_waiting_for(client.client_id) == 0
