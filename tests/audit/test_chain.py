"""The audit trail on every database: what is written with what, and the chain."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from sso import audit, clock
from sso.audit import chain, rows, writer
from sso.audit.events import Event
from sso.database import buffer
from sso.extensions import db
from sso.models import AuditEvent, User
from tests.conftest import Clock
from tests.support.factories import make_user

pytestmark = pytest.mark.slow


@pytest.fixture
def app(app_on_each: Flask) -> Flask:
    return app_on_each


@pytest.fixture
def user(app: Flask) -> User:
    return make_user(app)


def happen(app: Flask, count: int, name: Event = Event.EXPORTED) -> None:
    with app.app_context():
        for number in range(count):
            audit.event(name, user=f"user {number}", client="books", colour="blue")
        db.session.commit()


def names(app: Flask) -> list[str]:
    writer.flush(app)
    with app.app_context():
        return [one.name for one in rows.newest(limit=1000)]


def verify(app: Flask) -> list[str]:
    result = app.test_cli_runner().invoke(args=["audit", "verify", "--json"])
    faults: list[str] = json.loads(result.stdout)["faults"]
    assert result.exit_code == (1 if faults else 0)
    return faults


def execute(app: Flask, statement: str) -> None:
    """As somebody who can write to the database."""
    with app.app_context():
        assert db.session.execute(text(statement)).rowcount >= 1  # type: ignore[attr-defined]
        db.session.commit()


def test_with_the_transaction_or_not_at_all(app: Flask, user: User) -> None:
    with app.app_context():
        db.session.get(User, user.id).name = "Changed"  # type: ignore[union-attr]
        audit.event(Event.EXPORTED)
        audit.event(Event.SIGN_IN_FAILED)
        db.session.flush()
        db.session.rollback()
    assert names(app) == [Event.SIGN_IN_FAILED]
    with app.app_context():
        db.session.get(User, user.id).name = "Changed"  # type: ignore[union-attr]
        audit.event(Event.EXPORTED)
        db.session.commit()
        # Before anything is flushed from the buffer.
        assert {one.name for one in rows.newest(limit=9)} == {
            Event.EXPORTED,
            Event.SIGN_IN_FAILED,
        }


def test_after_the_commit_or_without_one(app: Flask) -> None:
    with app.app_context():
        db.session.commit()
        audit.event(Event.EXPORTED)

    def fail() -> None:
        with app.app_context():
            audit.event(Event.EXPORTED)
            audit.event(Event.TOKENS_REFUSED)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert sorted(names(app)) == [Event.EXPORTED, Event.TOKENS_REFUSED]


def test_text_that_no_database_takes(app: Flask) -> None:
    with app.app_context():
        audit.event(Event.EXPORTED, client="a\0b", reason="\ud800" + "x" * 500)
        db.session.commit()
        (found,) = rows.newest(limit=9)
        assert found.client_id == "ab"
        assert len(found.fields) < 300


@pytest.mark.parametrize(
    ("tampering", "fault"),
    [
        ("UPDATE audit_events SET address = '192.0.2.1' WHERE number = 3", "event 3 "),
        ("UPDATE audit_events SET fields = '{}' WHERE number = 3", "event 3 "),
        ("UPDATE audit_events SET user_id = NULL WHERE number = 3", "event 3 "),
        ("DELETE FROM audit_events WHERE number = 3", "event 3 was removed"),
        ("DELETE FROM audit_events WHERE number = 1", "event 1 was removed"),
        ("DELETE FROM audit_events WHERE number > 3", "events 4 to 5 were removed"),
        ("DELETE FROM audit_events", "events 1 to 5 were removed"),
        ("UPDATE audit_events SET number = number + 1 WHERE number = 5", "event 5 was removed"),
        ("DELETE FROM audit_chain", "is missing"),
        ("UPDATE audit_chain SET head_number = 4", "forged"),
        ("UPDATE audit_chain SET anchor_number = 2", "forged"),
    ],
)
def test_tampering_is_found(app: Flask, tampering: str, fault: str) -> None:
    happen(app, 5)
    assert verify(app) == []
    execute(app, tampering)
    found = verify(app)
    assert any(fault in one for one in found), found
    assert len(found) <= 4
    happen(app, 2)
    again = verify(app)  # and new events cover nothing up
    assert any(fault in one for one in again), again


def test_a_broken_chain_is_told_once_a_minute(
    app: Flask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "_say_again_at", 0.0)
    happen(app, 2)
    verify(app)
    execute(app, "UPDATE audit_chain SET head_number = 1")
    happen(app, 1)
    with app.app_context():
        assert [chain.append_due() for _ in range(5)] == [0] * 5
    assert [one.message for one in caplog.records if "not sealed" in one.message] == [
        "audit events are not sealed: the ends of the audit chain are forged, or "
        "SSO_SECRET_KEY is not the one of this chain; run: flask audit verify"
    ]


def test_nobody_waits_while_a_broken_chain_is_verified(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verification may take minutes; the lock of the chain ends before it begins."""
    happen(app, 2)
    verify(app)
    execute(app, "UPDATE audit_chain SET head_number = 1")
    happen(app, 1)
    real, written = chain.verify, []

    def verify_now(noted_head: tuple[int, str] | None) -> chain.Verdict:
        with db.engine.connect() as other:
            if other.dialect.name == "postgresql":
                other.execute(text("SET LOCAL lock_timeout = '2s'"))
            statement = text("UPDATE audit_chain SET head_number = head_number")
            written.append(other.execute(statement).rowcount)
            other.rollback()
        return real(noted_head)

    monkeypatch.setattr(chain, "verify", verify_now)
    assert verify(app)
    assert written == [1]


def test_two_events_change_places(app: Flask) -> None:
    happen(app, 5)
    assert verify(app) == []
    for change in ("-1 WHERE number = 2", "2 WHERE number = 4", "4 WHERE number = -1"):
        execute(app, f"UPDATE audit_events SET number = {change}")
    assert len(verify(app)) >= 2


def test_a_head_that_was_noted(app: Flask) -> None:
    happen(app, 3)
    run = app.test_cli_runner()
    head = json.loads(run.invoke(args=["audit", "verify", "--json"]).stdout)["head"]
    happen(app, 2)
    assert run.invoke(args=["audit", "verify", "--head", head]).exit_code == 0
    for table in ("audit_events", "audit_chain"):
        execute(app, f"DELETE FROM {table}")
    happen(app, 5)
    assert verify(app) == []  # a chain that was made again looks whole
    made_anew = run.invoke(args=["audit", "verify", "--head", head])
    assert made_anew.exit_code == 1
    assert "noted" in made_anew.stdout


def test_another_secret_key_does_not_fit(app: Flask) -> None:
    happen(app, 2)
    verify(app)
    app.extensions["sso.settings"] = _with_key(app, "another secret key than the one before it")
    refused = app.test_cli_runner().invoke(args=["audit", "verify"])
    assert refused.exit_code == 1
    assert "SSO_SECRET_KEY" in refused.stderr


def _with_key(app: Flask, key: str) -> object:
    from dataclasses import replace

    return replace(app.extensions["sso.settings"], secret_key=key)


def test_purging_keeps_the_rest_verifiable(
    app: Flask, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    happen(app, 3)
    clock.move(days=10)
    happen(app, 4)
    run = app.test_cli_runner()
    counts = json.loads(run.invoke(args=["purge", "--audit-days", "5", "--json"]).stdout)
    assert counts["audit_events"] == 3
    told = json.loads(run.invoke(args=["audit", "verify", "--json"]).stdout)
    # Those four, and that the others were purged.
    assert (told["events"], told["first"], told["faults"]) == (5, 4, [])
    execute(app, "DELETE FROM audit_events WHERE number = 4")
    assert verify(app) == ["event 4 was removed"]
    clock.move(days=10)
    refused = run.invoke(args=["purge", "--audit-days", "5"])
    assert refused.exit_code == 1
    assert "run: flask audit verify" in refused.stderr
    assert verify(app) == ["event 4 was removed"]
    assert run.invoke(args=["purge", "--audit-days", "5", "--over-faults"]).exit_code == 0
    assert "event 4 was removed" not in verify(app)


def test_the_worker_purges_by_the_setting(app: Flask, clock: Clock) -> None:
    happen(app, 12)
    clock.move(days=400, hours=1)
    happen(app, 2)
    with app.app_context():
        chain.append_to_chain()
        assert chain.purge(timedelta(days=400), at_most=5) == 5
        assert verify(app) == []
        assert chain.purge_due() == 7
        assert chain.purge_due() == 0
    assert verify(app) == []


def test_sealed_by_several_at_once(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "AT_ONCE", 7)
    happen(app, 100)
    faults: list[BaseException] = []

    def work() -> None:
        try:
            with app.app_context():
                while chain.append_to_chain():
                    pass
        except BaseException as error:
            faults.append(error)

    _together(work, 4)
    assert faults == []
    assert verify(app) == []
    with app.app_context():
        numbers = sorted(one.number or 0 for one in rows.newest(limit=1000))
    assert numbers == list(range(1, 101))


def test_requests_do_not_wait_for_the_seal(app: Flask) -> None:
    """A batch is written while others write, and what comes late goes behind."""
    happen(app, 1)
    assert verify(app) == []
    with app.app_context():
        event = audit.Record(
            Event.EXPORTED, clock.now() - timedelta(hours=1), None, None, None, None, {}
        )
        writer.add(db.session.connection(), [writer.pending(event)])
        db.session.commit()
    assert verify(app) == []


def test_a_database_that_is_away(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "PAUSE", 60)
    execute_ddl(app, "ALTER TABLE audit_events RENAME TO hidden")
    with app.app_context():
        audit.event(Event.SIGN_IN_FAILED)
    assert writer.flush(app) is False
    execute_ddl(app, "ALTER TABLE hidden RENAME TO audit_events")
    assert names(app) == [Event.SIGN_IN_FAILED]


def execute_ddl(app: Flask, statement: str) -> None:
    with app.app_context():
        db.session.execute(text(statement))
        db.session.commit()


def test_the_buffer_is_bounded(
    app: Flask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(buffer, "PAUSE", 60)
    with app.app_context():
        for number in range(buffer.MOST + 50):
            audit.event(Event.SIGN_IN_FAILED, number=number)
    writer.flush(app)
    assert [one.message for one in caplog.records if "alone" in one.message] == [
        "50 audit events are on the log alone"
    ]
    with app.app_context():
        count = db.session.scalar(db.select(db.func.count()).select_from(AuditEvent))
        oldest = min(
            int(json.loads(one.fields)["number"]) for one in rows.newest(limit=buffer.MOST + 50)
        )
    assert count == buffer.MOST
    assert oldest == 50


@pytest.mark.parametrize("meanwhile", ["4 5", "4 5 6", "4 5 6 7"])
def test_it_is_bounded_while_the_database_is_away_too(
    app: Flask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, meanwhile: str
) -> None:
    """What was taken to be written goes back in front of what came meanwhile; the oldest go."""
    come = meanwhile.split()
    monkeypatch.setattr(buffer, "PAUSE", 60)
    monkeypatch.setattr(buffer, "MOST", 3)
    with app.app_context():
        waiting = buffer.Buffer(db.engine, writer.add, "audit events")

    def put(*users: str) -> None:
        name, at = Event.SIGN_IN_FAILED, clock.now()
        records = [audit.Record(name, at, user, None, None, None, {}) for user in users]
        waiting.put([writer.pending(record) for record in records])

    def away(*_: object) -> None:
        put(*come)
        raise OperationalError("", None, Exception())

    put("1", "2", "3")
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "_write", away)
        assert not waiting.flush()
    assert waiting.flush()
    with app.app_context():
        users = [str(one.user_id) for one in rows.newest(limit=9)]
    assert sorted(users) == ["3", *come][-3:]
    assert [one.message for one in caplog.records if "alone" in one.message] == [
        f"{len(come)} audit events are on the log alone"
    ]


def _together(work: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
