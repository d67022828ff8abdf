"""Heartbeats: the last one counts, from any process."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask

from sso.database import dialects
from sso.extensions import db
from sso.models import Grant
from sso.store import outbox
from tests.conftest import Clock
from tests.support.statements import watched


def beat(app: Flask, name: str = outbox.WORKER) -> None:
    with app.app_context():
        outbox.beat(name)
        db.session.commit()


def last(app: Flask, name: str = outbox.WORKER) -> datetime | None:
    with app.app_context():
        return outbox.last_beat(name)


def test_the_last_one_is_told(app: Flask, clock: Clock) -> None:
    assert last(app) is None
    for _ in range(3):
        clock.move(minutes=1)
        beat(app)
        assert last(app) == clock.time
    clock.move(minutes=1)
    beat(app, "another")
    assert last(app, "another") == clock.time
    assert last(app) == clock.time - timedelta(minutes=1, microseconds=1)


def test_another_process_was_quicker(
    app: Flask, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote the first one after this process had looked for it."""
    beat(app)
    update, looked = outbox._update_heartbeat, []

    def too_early(name: str, now: datetime) -> bool:
        looked.append(now)
        return len(looked) > 1 and update(name, now)

    monkeypatch.setattr(outbox, "_update_heartbeat", too_early)
    clock.move(minutes=1)
    beat(app)
    assert last(app) == clock.time


def test_whether_a_token_is_queued_is_found_by_client_and_session(app: Flask) -> None:
    """An application may have a million tokens of the last week, and a sign-out asks each time."""
    statements: list[tuple[str, Any]] = []
    with app.app_context():
        with watched(db.engine, lambda statement, values: statements.append((statement, values))):
            outbox.enqueue_logouts(Grant.client_id == "books")
        statement, parameters = next(each for each in statements if "logout_deliveries" in each[0])
        connection = db.session.connection()
        if dialects.is_postgresql():
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        explain = "EXPLAIN" if dialects.is_postgresql() else "EXPLAIN QUERY PLAN"
        plan = connection.exec_driver_sql(f"{explain} {statement}", parameters).all()
    assert "ix_logout_deliveries_client_id_sid" in str(plan)
