"""Heartbeats: the last one counts, from any process."""

from datetime import datetime, timedelta

import pytest
from flask import Flask

from sso.extensions import db
from sso.store import outbox
from tests.conftest import Clock


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
