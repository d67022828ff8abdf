"""What is kept for `flask explain`, on every database: bounded, beside every transaction, and gone
with its client or user.
"""

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import func, inspect, select, text
from sqlalchemy.exc import OperationalError

from sso import audit, clock
from sso.database import buffer
from sso.extensions import db
from sso.flow.refusals import Reason
from sso.i18n.message import code_of
from sso.jobs import upkeep
from sso.models import Client, Refusal, User
from sso.services import accounts, clients
from sso.store import refusals
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.explaining import Explain
from tests.support.factories import make_client, make_user
from tests.support.processes import wait_for


@pytest.fixture
def user(app: Flask) -> User:
    return make_user(app)


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app)


def refusal(**more: Any) -> Refusal:
    usual: dict[str, Any] = {
        "request_id": "7k3m-v9xq", "at": clock.now(), "bucket": 1, "name": "tokens_refused",
        "endpoint": "token", "client_id": None, "user_id": None, "details": "{}",
    }  # fmt: skip
    return Refusal(**{**usual, **more})


def add(app: Flask, *rows: Refusal) -> None:
    with app.app_context(), db.engine.begin() as connection:
        refusals.add(connection, rows)


def kept(app: Flask) -> list[Refusal]:
    refusals.flush(app)
    with app.app_context():
        return list(db.session.scalars(select(Refusal).order_by(Refusal.at)))


def test_the_newest_of_each_bucket_are_kept(app: Flask) -> None:
    start = clock.now()
    for number in range(3):
        rows = [
            refusal(request_id=f"{number}-{n:06}", at=start + timedelta(seconds=100 * number + n))
            for n in range(refusals.KEPT - 30)
        ]
        add(app, *rows, refusal(bucket=2, at=start + timedelta(seconds=number)))
        add(app, *[refusal(bucket=3) for _ in range(3 * refusals.KEPT)])
    by_bucket: dict[int, list[Refusal]] = {1: [], 2: [], 3: []}
    for row in kept(app):
        by_bucket[row.bucket].append(row)
    assert [len(rows) for rows in by_bucket.values()] == [refusals.KEPT, 3, refusals.KEPT]
    assert by_bucket[1][0].request_id == "1-000040"
    assert by_bucket[1][-1].request_id == "2-000069"


def test_who_is_gone_keeps_nothing_from_being_written(
    app: Flask, client: RelyingParty, user: User
) -> None:
    add(
        app,
        refusal(client_id="nobody", user_id=uuid4()),
        refusal(client_id=client.client_id, user_id=user.id, at=clock.now() + timedelta(1)),
    )
    first, second = kept(app)
    assert (first.client_id, first.user_id) == (None, None)
    assert (second.client_id, second.user_id) == (client.client_id, user.id)


def test_theirs_go_with_clients_and_users(app: Flask, client: RelyingParty, user: User) -> None:
    other = make_client(app, name="Other")
    add(
        app,
        refusal(client_id=client.client_id),
        refusal(client_id=other.client_id, user_id=user.id),
        refusal(client_id=other.client_id),
        refusal(),
    )
    with app.app_context():
        clients.delete(audit.operator(), client.client_id)
        db.session.commit()
        assert len(kept(app)) == 3
        found = db.session.get(User, user.id)
        assert found
        accounts.delete(audit.operator(), found)
        db.session.commit()
    assert sorted(str(row.client_id) for row in kept(app)) == sorted([other.client_id, "None"])


@pytest.mark.parametrize("what", ["client", "user"])
def test_deleted_at_the_same_moment(
    app: Flask, client: RelyingParty, user: User, what: str
) -> None:
    """Nothing about them is left, and neither the deletion nor the writing fails for good."""
    stop, faults = threading.Event(), []

    def write() -> None:
        waiting = refusals.open_buffer(app)
        while not stop.is_set():
            waiting.put([refusal(client_id=client.client_id, user_id=user.id)])
            waiting.flush()
        if not waiting.flush():
            faults.append("it still waits")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with app.app_context():
            while not kept(app):
                db.session.rollback()
            if what == "client":
                clients.delete(audit.operator(), client.client_id)
            else:
                found = db.session.get(User, user.id)
                assert found
                accounts.delete(audit.operator(), found)
            db.session.commit()
    finally:
        stop.set()
        thread.join(60)
    assert faults == []
    column = "client_id" if what == "client" else "user_id"
    assert {getattr(row, column) for row in kept(app)} <= {None}


def test_deleting_several_clients_is_no_deadlock(app: Flask) -> None:
    """An operator deletes them in one transaction, while their refusals are written."""
    ids = [make_client(app, name=f"{n}").client_id for n in range(6)]
    stop = threading.Event()

    def write(order: int) -> None:
        waiting = refusals.open_buffer(app)
        while not stop.is_set():
            waiting.put([refusal(client_id=one) for one in ids[::order]])
            waiting.flush()
        wait_for(waiting.flush, "the last refusals")  # none of them may come during another test

    threads = [threading.Thread(target=write, args=(order,)) for order in (1, -1)]
    for thread in threads:
        thread.start()
    try:
        with app.app_context():
            for one in (ids[3], ids[0], ids[5]):
                clients.delete(audit.operator(), one)
            db.session.commit()
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    with app.app_context():
        assert db.session.scalar(select(func.count()).select_from(Client)) == 3


def test_several_processes_at_once(app: Flask) -> None:
    faults: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(10):
                add(app, *[refusal(bucket=n % 2) for n in range(60)])
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    add(app, refusal(bucket=0), refusal(bucket=1))  # what one left locked, the next one deletes
    assert len(kept(app)) == 2 * refusals.KEPT


def test_texts_that_no_database_takes(app: Flask, client: RelyingParty, explain: Explain) -> None:
    http = app.test_client(use_cookies=False)
    for odd in ("%00", "%FF%FE", "%ED%A0%80", "%F0%9F%98%80", "%5Cu0000", "%0D%0A"):
        for name in ("client_id", "redirect_uri", "scope", "prompt", "id_token_hint", "max_age"):
            query = "&".join(f"{k}={v}" for k, v in client.parameters(**{name: None}).items())
            http.get(f"{BASE}/oauth2/authorize?{query}&{name}=a{odd}b", base_url=ORIGIN)
        http.get(f"/{odd}/token", base_url=ORIGIN)
        http.get("/x/token", headers={"Host": "a" * 300}, base_url=ORIGIN)
    assert refusals.flush(app)
    assert len(explain.json("--limit", "1000")) > 30


def test_a_request_that_is_rolled_back_leaves_its_refusal(
    app: Flask, client: RelyingParty, explain: Explain
) -> None:
    answer = client.exchange("x")  # the endpoint rolls back
    assert "No such code is stored here" in explain(answer)


def test_a_database_that_is_away(
    app: Flask, client: RelyingParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers do not wait for it; they are written when it is back."""
    monkeypatch.setattr(buffer, "PAUSE", 60)
    with monkeypatch.context() as patch:
        waiting = app.extensions["sso.refusals"]

        def away(*_: object) -> None:
            raise OperationalError("", None, Exception())

        patch.setattr(waiting, "_write", away)
        assert client.exchange("x").status_code == 400
        assert not refusals.flush(app)
    assert len(kept(app)) == 1


def test_they_go_after_a_week(app: Flask, clock: Clock) -> None:
    add(app, refusal(bucket=1))
    clock.move(days=6)
    add(app, refusal(bucket=2))
    with app.app_context():
        assert upkeep.purge()["refusals"] == 0
    clock.move(days=2)
    with app.app_context():
        assert upkeep.purge()["refusals"] == 1
    assert [row.bucket for row in kept(app)] == [2]


@pytest.mark.parametrize(
    ("beginning", "found"),
    [("ab_d", 1), ("ab%", 0), ("ab", 4), ("AB", 4), ("abcd-efgh", 2), ("x", 0)],
)
def test_by_the_beginning(app: Flask, beginning: str, found: int) -> None:
    for request_id in ("ab_defgh", "abcd-efgh", "abcd-efgi", "ABcd-efgh"):
        add(app, refusal(request_id=request_id))
    with app.app_context():
        assert len(refusals.find(beginning, by_beginning=True, limit=9)) == found
        assert len(refusals.find("abcd-efgh", limit=9)) == 1


def test_what_is_looked_for_has_an_index(app: Flask) -> None:
    with app.app_context():
        found = {tuple(one["column_names"]) for one in inspect(db.engine).get_indexes("refusals")}
    assert found == {
        ("at",), ("request_id",), ("user_id",), ("bucket", "at"), ("client_id", "at"),
    }  # fmt: skip


def test_what_succeeds_costs_nothing(
    app: Flask, client: RelyingParty, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is handed over, and nothing is written."""

    def fail(_: object) -> None:
        raise AssertionError("something is kept")

    browser = Browser(app)
    monkeypatch.setitem(app.extensions, "sso.keep_refusals", fail)
    tokens = client.exchange(browser.approve(client).code).get_json()
    assert client.userinfo(tokens["access_token"]).status_code == 200
    assert client.refresh(tokens["refresh_token"]).status_code == 200
    with app.app_context():
        assert db.session.scalar(text("SELECT count(*) FROM refusals")) == 0


@pytest.mark.parametrize(
    ("session", "scope", "reason"),
    [
        ("live", "openid", None),
        ("expired", "openid", Reason.SESSION_ENDED),
        ("ended", "openid", Reason.SESSION_ENDED),
        ("purged", "openid", Reason.SESSION_ENDED),
        ("expired", "openid offline_access", None),
        ("ended", "openid offline_access", None),
        ("purged", "openid offline_access", None),
        ("expired", "openid https://docs.example#offline_access", Reason.SESSION_ENDED),
    ],
)
def test_only_offline_access_outlives_the_session(
    session: str, scope: str, reason: Reason | None
) -> None:
    now, hour = clock.now(), timedelta(hours=1)
    reasons = refusals.RefusalReasons(
        digest="",
        expires_at=now + hour,
        used_at=None,
        revoked_at=None,
        client_id="books",
        user_id=uuid4(),
        scope=scope,
        ended_at=None,
        end_reason=None,
        user_disabled_at=None,
        client_disabled_at=None,
        session_ended_at=now if session == "ended" else None,
        session_expires_at={"expired": now, "purged": None}.get(session, now + hour),
    )
    text = reasons.reason_for("books", now)
    assert (text and code_of(text)) == reason
