"""What a change of a client leaves for the worker, on both databases."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import event, func, insert, select

from sso import audit
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import Client, ClientWork, Consent, Grant, LogoutDelivery, Token, User
from sso.services import clients
from sso.services.checks import Invalid
from sso.store import client_work
from sso.store.client_work import Progress
from tests.support.actors import Browser, RelyingParty
from tests.support.administration import ADMIN, sign_in_staff
from tests.support.applications import environ_of
from tests.support.factories import make_client, make_user, register_client
from tests.support.processes import ROOT
from tests.support.programs import Program

MANY = 2 * client_work.BATCH + client_work.AT_ONCE


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def app(app_on_each: Flask) -> Flask:
    return app_on_each


class Crowd:
    """A client with the tokens of Dana, and with so many grants that Dana's is the last."""

    def __init__(self, app: Flask, many: int = MANY, **more: Any) -> None:
        self.app, self.user = app, make_user(app, groups=["staff"])
        self.client: RelyingParty = make_client(app, **more)
        self.browser = Browser(app)
        self.tokens = self.client.exchange(self.browser.approve(self.client).code).get_json()
        self.code = self.browser.authorize(self.client).code
        with app.app_context():
            grant = db.session.scalars(select(Grant)).first()
            assert grant
            columns = {c.key: getattr(grant, c.key) for c in Grant.__table__.columns}
            rows = [{**columns, "id": UUID(int=n), "sid": f"sid {n}"} for n in range(1, many)]
            db.session.execute(insert(Grant), rows)
            db.session.commit()

    @property
    def id(self) -> str:
        return self.client.client_id

    def live(self) -> int:
        with self.app.app_context():
            of_client = (Grant.client_id == self.id, Grant.ended_at.is_(None))
            return db.session.scalar(select(func.count(Grant.id)).where(*of_client)) or 0

    def require_refused(self) -> None:
        """Nothing that the client has is of use."""
        assert self.client.exchange(self.code).status_code in (400, 401)
        refused = self.client.refresh(self.tokens["refresh_token"])
        assert refused.status_code in (400, 401), refused.text
        assert self.client.userinfo(self.tokens["access_token"]).status_code == 401
        for name in ("access_token", "refresh_token"):
            answer = self.client.introspect(self.tokens[name])
            assert answer.status_code == 401 or not answer.get_json()["active"]

    def work(self) -> list[tuple[int, int | None]]:
        """Let the worker do everything; return how far it was after each batch."""
        steps = []
        with self.app.app_context():
            while upkeep.end_of_changed_clients():
                if progress := client_work.progress(self.id):
                    steps.append((progress.done, progress.total))
        return steps


def change(crowd: Crowd, function: Any, *values: Any, actor: audit.Actor = audit.SYSTEM) -> Any:
    with crowd.app.app_context():
        result = function(actor, crowd.id, *values)
        db.session.commit()
        return result


def test_a_disabled_client_is_refused_before_its_grants_have_ended(app: Flask) -> None:
    crowd = Crowd(app)
    change(crowd, clients.disable)
    assert crowd.live() == MANY + 1 - client_work.AT_ONCE
    crowd.require_refused()
    with pytest.raises(Invalid, match="still being ended"):
        change(crowd, clients.enable)
    with pytest.raises(Invalid, match="still being ended"):
        change(crowd, clients.change, {"disabled": False})
    shown = app.test_cli_runner().invoke(args=["client", "show", crowd.id])
    assert "The worker is ending its grants." in shown.output
    steps = crowd.work()
    assert steps[0] == (client_work.AT_ONCE, MANY + 1)
    assert steps[1] == (client_work.AT_ONCE + client_work.BATCH, MANY + 1)
    assert crowd.live() == 0
    change(crowd, clients.enable)
    crowd.require_refused()


def test_a_narrowed_client_is_refused_before_its_grants_have_ended(app: Flask) -> None:
    crowd = Crowd(app, backchannel_logout_uri="https://books.example/logout")
    hal = make_user(app, "hal@example.com", groups=["board"])
    browser = Browser(app)
    browser.sign_in("hal@example.com")
    kept = crowd.client.exchange(browser.approve(crowd.client).code).get_json()
    _, outcome = change(crowd, clients.change, {"groups": ["board"]})
    assert clients.LEFT_FOR_WORKER in outcome.notes
    assert crowd.live() > client_work.BATCH
    crowd.require_refused()
    assert crowd.client.refresh(kept["refresh_token"]).status_code == 200
    crowd.work()
    with app.app_context():
        live = select(Grant.user_id).where(Grant.ended_at.is_(None))
        assert db.session.scalars(live).all() == [hal.id]
        reasons = select(Grant.end_reason).where(Grant.ended_at.is_not(None)).distinct()
        assert db.session.scalars(reasons).all() == ["group_lost"]
        queued = db.session.scalar(select(func.count(LogoutDelivery.id)))
        assert queued == MANY  # one for each session
    assert crowd.client.refresh(kept["refresh_token"]).status_code == 200


def test_who_is_admitted_again_in_time_keeps_the_access(app: Flask) -> None:
    crowd = Crowd(app)
    change(crowd, clients.change, {"groups": ["board"]})
    change(crowd, clients.change, {"groups": ["board", "staff"]})
    crowd.work()
    assert crowd.live() == MANY + 1 - client_work.AT_ONCE
    assert crowd.client.refresh(crowd.tokens["refresh_token"]).status_code == 200


def test_a_deleted_client_is_refused_and_then_gone(app: Flask) -> None:
    crowd = Crowd(app, client_id="books")
    done = app.test_cli_runner().invoke(args=["client", "delete", "books", "--yes"])
    assert "No request accepts books any more." in done.output
    crowd.require_refused()
    for function, values in (
        (clients.change, [{"disabled": False}]),
        (clients.enable, []),
        (clients.delete, []),
        (clients.rotate_secret, []),
    ):
        with pytest.raises(Invalid, match="being deleted"):
            change(crowd, function, *values)
    page = sign_in_staff(app, "ada@example.com")
    assert "being deleted" in page.open(f"{ADMIN}/applications").html
    assert "The worker is deleting it." in page.open(f"{ADMIN}/application?id=books").html
    crowd.work()
    with app.app_context():
        for model in (Client, Grant, Token, Consent, ClientWork):
            rows = select(model)
            if hasattr(model, "client_id"):
                rows = rows.where(model.client_id == "books")
            assert db.session.scalars(rows).all() == [], model
        assert db.session.get(User, crowd.user.id)
        register_client(client_id="books", name="Books", redirect_uris=["https://a.example/"])


def test_few_grants_end_in_the_transaction_of_the_change(app: Flask) -> None:
    user, client, browser = make_user(app), make_client(app), Browser(app)
    client.exchange(browser.approve(client).code)
    with app.app_context():
        clients.disable(audit.SYSTEM, client.client_id)
        db.session.commit()
        assert db.session.scalars(select(Grant.end_reason)).all() == ["client_disabled"]
        clients.enable(audit.SYSTEM, client.client_id)
        db.session.commit()
    browser.authorize(client)
    with app.app_context():
        clients.delete(audit.SYSTEM, client.client_id)
        db.session.commit()
        assert db.session.scalars(select(Grant)).all() == []
        assert db.session.get(User, user.id)
        assert upkeep.end_of_changed_clients() == 0


def die(_: Any) -> None:
    raise ZeroDivisionError


def test_what_is_killed_goes_on_where_it_was(app: Flask) -> None:
    """A batch and the record of it are one transaction."""
    crowd = Crowd(app)
    change(crowd, clients.disable)
    with app.app_context():
        upkeep.end_of_changed_clients()  # counts
        upkeep.end_of_changed_clients()
        work = db.session.scalars(select(ClientWork)).one()
        after, done = work.after, work.done
        db.session.rollback()
        live = crowd.live()
        event.listen(db.session, "before_commit", die)
        try:
            with pytest.raises(ZeroDivisionError):
                upkeep.end_of_changed_clients()
        finally:
            event.remove(db.session, "before_commit", die)
        db.session.rollback()
        work = db.session.scalars(select(ClientWork)).one()
        assert (work.after, work.done) == (after, done)
    assert crowd.live() == live
    crowd.work()
    assert crowd.live() == 0


def test_a_slow_disk_gets_smaller_batches(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(app)
    change(crowd, clients.disable)
    now = 0.0

    def sizes(seconds: float) -> int:
        """The size after a batch that took so long."""
        moments = iter((now, now + seconds))
        with app.app_context(), monkeypatch.context() as patch:
            patch.setattr(upkeep, "time", Mock(monotonic=lambda: next(moments)))
            assert worker() == 1
        return worker.size

    worker = upkeep.InTime()
    assert [sizes(seconds) for seconds in (0.5, 1, 1, 100, 0.5, 0.1, 0)] == [
        1000, 500, 250, upkeep.SMALLEST_BATCH, upkeep.SMALLEST_BATCH, 250, 1000,
    ]  # fmt: skip
    crowd.work()
    assert crowd.live() == 0


def test_two_workers_share_it(app: Flask) -> None:
    crowd = Crowd(app)
    change(crowd, clients.change, {"groups": ["board"]})
    change(crowd, clients.disable)  # includes it
    errors: list[Exception] = []

    def work() -> None:
        try:
            crowd.work()
        except Exception as error:  # whatever it is fails the test below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert crowd.live() == 0
    with app.app_context():
        assert db.session.scalars(select(ClientWork)).all() == []


def test_work_that_begins_again_begins_at_the_first_grant(app: Flask) -> None:
    """The groups changed once more: grants that were looked at are looked at again."""
    make_user(app, groups=["staff"])
    client = make_client(app)
    client.exchange(Browser(app).approve(client).code)
    with app.app_context():
        row = db.session.get_one(Client, client.client_id)
        row.set_client_metadata({**row.client_metadata, "groups": ["board"]})
        db.session.add(ClientWork(
            client_id=client.client_id, kind=client_work.NARROW, done=5, after=UUID(int=2**128 - 1),
            created_at=row.created_at,
        ))  # fmt: skip
        db.session.flush()
        assert client_work.begin(client.client_id, client_work.NARROW)
        db.session.commit()
        assert db.session.scalars(select(Grant.end_reason)).all() == ["group_lost"]


def test_a_batch_ends_no_grant_of_those_admitted_before_it(app: Flask) -> None:
    """Another operator admits them again between two batches: what has ended stays ended."""
    crowd = Crowd(app, backchannel_logout_uri="https://books.example/logout")
    change(crowd, clients.change, {"groups": ["board"]})
    with app.app_context():
        for _ in range(2):  # counts, and one batch
            upkeep.end_of_changed_clients()
    ended = client_work.AT_ONCE + client_work.BATCH
    assert crowd.live() == MANY + 1 - ended
    crowd.require_refused()
    change(crowd, clients.change, {"groups": ["board", "staff"]}, actor=audit.Actor("ada"))
    crowd.work()
    assert crowd.live() == MANY + 1 - ended
    with app.app_context():
        assert db.session.scalar(select(func.count(LogoutDelivery.id))) == ended
        assert db.session.scalars(select(ClientWork)).all() == []
    assert crowd.client.refresh(crowd.tokens["refresh_token"]).status_code == 200
    assert crowd.client.exchange(crowd.browser.authorize(crowd.client).code).status_code == 200


@pytest.mark.parametrize("groups", [["board"], ["other"]])
def test_those_that_a_batch_left_are_ended_by_the_next_change(
    app: Flask, groups: list[str]
) -> None:
    """Another operator narrows it further between two batches: the work begins again."""
    crowd = Crowd(app)
    change(crowd, clients.change, {"groups": ["board", "staff"]})
    with app.app_context():
        for _ in range(2):
            upkeep.end_of_changed_clients()
    assert crowd.live() == MANY + 1
    change(crowd, clients.change, {"groups": groups})
    crowd.require_refused()
    crowd.work()
    assert crowd.live() == 0


def test_an_operator_waits_for_the_batch_under_way(app: Flask) -> None:
    """It ends by the groups as they were when it began, and is the last that does."""
    crowd, errors = Crowd(app), list[Exception]()
    change(crowd, clients.change, {"groups": ["board"]})

    def admit() -> None:
        try:
            change(crowd, clients.change, {"groups": ["board", "staff"]})
        except Exception as error:  # whatever it is fails the test below
            errors.append(error)

    thread = threading.Thread(target=admit)
    with app.app_context():
        for _ in range(2):
            client_work.do_batch(crowd.id, client_work.NARROW)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        db.session.commit()
    thread.join()
    assert errors == []
    crowd.work()
    assert crowd.live() == MANY + 1 - client_work.AT_ONCE - client_work.BATCH
    assert crowd.client.refresh(crowd.tokens["refresh_token"]).status_code == 200


def test_a_killed_worker_ends_only_those_who_are_not_admitted_now(
    app: Flask, tmp_path: Path
) -> None:
    """`kill -9` between and in batches; the next worker goes on, by the groups of that moment."""
    crowd = Crowd(app, many=20_000)
    url = app.config["SQLALCHEMY_DATABASE_URI"]
    environ = environ_of(url) | {"PATH": os.environ["PATH"]}

    def worker() -> Program:
        return Program("flask", ["worker"], cwd=ROOT, env=environ, stdout=tmp_path / "worker.log")

    def until(is_reached: Callable[[Progress | None], bool]) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with app.app_context():
                if is_reached(client_work.progress(crowd.id)):
                    return
            time.sleep(0.02)
        raise AssertionError((tmp_path / "worker.log").read_text())

    change(crowd, clients.change, {"groups": ["board"]})
    reached = client_work.AT_ONCE
    for _ in range(2):
        process, before = worker(), reached
        until(lambda work: work is not None and work.done > before)  # noqa: B023  # called at once
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        with app.app_context():
            work = client_work.progress(crowd.id)
        assert work, "it was killed in time"
        reached = work.done
        assert crowd.live() == 20_001 - reached
    change(crowd, clients.change, {"groups": ["board", "staff"]})
    process = worker()
    try:
        until(lambda work: work is None)
    finally:
        process.terminate()
        process.wait(40)
    assert crowd.live() == 20_001 - reached
    assert crowd.client.refresh(crowd.tokens["refresh_token"]).status_code == 200
