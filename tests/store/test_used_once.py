"""An identifier counts once, on every database and across connections."""

import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import clock
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import UsedOnce
from sso.store import redemption
from tests.conftest import Clock
from tests.store.test_races import at_once
from tests.support.processes import ROOT
from tests.support.signing import make_keyed_client

LIFE = timedelta(minutes=1)


def use(app: Flask, holder: str = "a", identifier: str = "1", life: timedelta = LIFE) -> bool:
    now: datetime = clock.now()
    with app.app_context(), db.engine.begin() as connection:
        return redemption.use_once(
            connection, "assertion", holder, identifier, now=now, expires_at=now + life
        )


def test_once(app: Flask) -> None:
    assert [use(app), use(app)] == [True, False]
    assert use(app, holder="b")
    assert use(app, identifier="2")


def test_what_is_rolled_back_is_free_again(app: Flask) -> None:
    now = clock.now()
    with app.app_context(), db.engine.connect() as connection:
        connection.begin()
        assert redemption.use_once(
            connection, "assertion", "a", "1", now=now, expires_at=now + LIFE
        )
    assert use(app)


def test_one_of_many_at_once(app: Flask) -> None:
    assert at_once(20, lambda: use(app)).count(True) == 1


def test_a_holder_cannot_fill_the_table(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redemption, "KEPT_ONCE", 2)
    assert use(app, identifier="1")
    assert use(app, identifier="2")
    with pytest.raises(redemption.TooManyUsed):
        use(app, identifier="3")
    assert not use(app, identifier="2")  # a replay is still seen
    assert use(app, holder="b", identifier="3")


def test_room_again_when_they_have_expired(
    app: Flask, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(redemption, "KEPT_ONCE", 1)
    assert use(app, identifier="1")
    clock.move(minutes=2)
    assert use(app, identifier="2")


def test_purged(app: Flask, clock: Clock) -> None:
    assert use(app, identifier="1")
    clock.move(minutes=3)
    with app.app_context():
        assert upkeep.purge()["used_once"] == 1
        assert not db.session.scalar(select(func.count()).select_from(UsedOnce))


def test_one_assertion_at_many_requests(app: Flask) -> None:
    bank = make_keyed_client(app)
    credentials = bank.credentials()
    answers = at_once(8, lambda: bank.post("/oauth2/introspect", {"token": "t", **credentials}))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 401: 7}


_USE = """
import sys, time
from datetime import datetime, timedelta, UTC
from sso import database
from sso.store.redemption import use_once
engine = database.open_engine(sys.argv[1])
now = datetime.fromtimestamp(float(sys.argv[2]), UTC)
engine.connect().close()
first = 0
for turn, number in enumerate(range(300)[:: int(sys.argv[3])]):
    if turn == 50:  # both have begun, and race for the other 200
        print("ready", flush=True)
        sys.stdin.readline()
    with engine.begin() as connection:
        life = timedelta(minutes=1)
        first += use_once(
            connection, "assertion", "a", str(number), now=now, expires_at=now + life
        )
print(first)
"""


@pytest.mark.slow
def test_two_processes(app: Flask) -> None:
    with app.app_context():
        url = db.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", _USE, url, str(clock.now().timestamp())]
    both: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    nodes = [subprocess.Popen([*command, step], cwd=ROOT, **both) for step in ("1", "-1")]
    for node in nodes:
        assert node.stdout
        assert node.stdout.readline() == "ready\n"
    for node in nodes:
        assert node.stdin
        node.stdin.write("\n")
        node.stdin.flush()
    counts = [int(node.communicate(timeout=60)[0]) for node in nodes]
    assert sum(counts) == 300
    assert min(counts) >= 50, counts
