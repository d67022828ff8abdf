"""When people were last active, for sessions of versions that did not note it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import event, select, text

from sso import clock
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import BrowserSession, User
from sso.store import migrations, sessions, users

AGES = (timedelta(days=3), timedelta(days=1), timedelta(days=2))  # of each person's sessions
PEOPLE = 4
SESSIONS = 3 * len(AGES)


@pytest.fixture
def app(own_tables: Flask) -> Flask:
    return own_tables


def active(app: Flask) -> dict[str, timedelta | None]:
    """By email, how long ago people were active, in whole hours."""
    with app.app_context():
        rows = db.session.execute(select(User.email, User.last_active_at)).all()
        ages = {email: clock.now() - moment if moment else None for email, moment in rows}
    hour = timedelta(hours=1)
    return {email: age and hour * (age // hour) for email, age in ages.items()}


@pytest.fixture
def old(app: Flask) -> list[str]:
    """The emails of people whose sessions noted nothing; the last one has no session."""
    now = clock.now()
    with app.app_context():
        people = [User(email=f"p{number}@example.com", name="") for number in range(PEOPLE)]
        db.session.add_all(people)
        db.session.flush()
        db.session.add_all(
            BrowserSession(
                digest=f"{person.email} {age}",
                user_id=person.id,
                auth_time=now,
                amr="pwd",
                acr="1",
                last_seen_at=now - age,
                expires_at=now + timedelta(days=9),
            )
            for person in people[:-1]
            for age in AGES
        )
        emails = [person.email for person in people]
        db.session.commit()
    return emails


def versions() -> dict[str, int]:
    rows = db.session.execute(select(User.email, User.version)).all()
    return {row.email: row.version for row in rows}


def run(app: Flask, job: upkeep.LastActive) -> int:
    """Run the job until it has nothing to do; return how often."""
    count = 1
    with app.app_context():
        while job():
            count += 1
    return count


@contextmanager
def updates_of_users(app: Flask) -> Iterator[list[str]]:
    statements: list[str] = []

    def note(_c: Any, _k: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE users"):
            statements.append(statement)

    with app.app_context():
        engine = db.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", note)


def test_the_migration_changes_no_person(app: Flask, old: list[str]) -> None:
    """It would lock everybody until its end."""
    with updates_of_users(app) as statements, app.app_context():
        migrations.downgrade(revision="0045")
        migrations.upgrade()
        migrations.check()
    assert [each for each in statements if "last_active_at" in each] == []
    assert set(active(app).values()) == {None}


@pytest.mark.parametrize("size", [2, 9, 500])
def test_the_worker_fills_it_in_batches(
    app: Flask, old: list[str], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app.app_context():
        before = versions()
    monkeypatch.setattr(upkeep, "SESSIONS_AT_ONCE", size)
    assert run(app, upkeep.LastActive()) == SESSIONS // size + 1
    assert active(app) == {**dict.fromkeys(old[:-1], timedelta(days=1)), old[-1]: None}
    with app.app_context():
        assert versions() == before
        db.session.execute(text("UPDATE users SET last_active_at = NULL"))
        db.session.commit()
    assert run(app, upkeep.LastActive()) == 1  # of another worker: it is done
    assert set(active(app).values()) == {None}


def test_what_was_noted_meanwhile_stays(app: Flask, old: list[str]) -> None:
    with app.app_context():
        for email, days in ((old[0], 0), (old[1], 40)):
            person = users.find_by_email(email)
            assert person
            sessions.note_all_active({person.id: clock.now() - timedelta(days=days)})
        db.session.commit()
    run(app, upkeep.LastActive())
    ages = [active(app)[email] for email in old]
    assert ages == [timedelta(0), timedelta(days=40), timedelta(days=1), None]


def test_a_worker_that_was_killed_begins_again(
    app: Flask, old: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SESSIONS_AT_ONCE", 2)
    with app.app_context():
        assert upkeep.LastActive()() == 1
    run(app, upkeep.LastActive())
    assert active(app) == {**dict.fromkeys(old[:-1], timedelta(days=1)), old[-1]: None}
