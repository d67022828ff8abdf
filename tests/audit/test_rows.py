"""The seal covers every column of an event, and both ends of the chain."""

import json
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import inspect, text, update

from sso import audit
from sso.audit import chain
from sso.audit.events import Event
from sso.extensions import db
from sso.models import AuditChain, AuditEvent
from tests.conftest import Clock

ENDS = ("anchor_number", "anchor_seal", "head_number", "head_seal", "seal")


def happen(app: Flask, count: int) -> None:
    for number in range(count):
        headers = {"User-Agent": f"Firefox {number}"}
        with app.test_request_context(environ_base={"REMOTE_ADDR": "203.0.113.7"}, headers=headers):
            audit.event(Event.EXPORTED, user=f"user {number}", client="books", colour="blue")
            db.session.commit()


def verify(app: Flask, *more: str) -> tuple[list[str], str]:
    result = app.test_cli_runner().invoke(args=["audit", "verify", "--json", *more])
    told = json.loads(result.stdout)
    assert result.exit_code == (1 if told["faults"] else 0)
    return told["faults"], told["head"]


@pytest.fixture
def sealed(app: Flask, clock: Clock) -> Flask:
    happen(app, 4)
    assert verify(app)[0] == []
    return app


COLUMNS = [column.name for column in inspect(AuditEvent).columns]
OTHERS = {
    "id": "'00000000000000000000000000000000'",
    "at": "'2020-01-01 00:00:00.000000'",
    "number": "77",
    "fields": "'{}'",
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("number", [2, 4])
def test_each_column_of_an_event(sealed: Flask, column: str, number: int) -> None:
    """In the middle, and of the last one, behind which no other seal stands."""
    value = OTHERS.get(column, "'another'")
    with sealed.app_context():
        statement = f"UPDATE audit_events SET {column} = {value} WHERE number = {number}"
        assert db.session.execute(text(statement)).rowcount == 1  # type: ignore[attr-defined]
        db.session.commit()
    assert verify(sealed)[0]


@pytest.mark.parametrize("column", ["user_id", "client_id", "address", "browser"])
def test_what_is_taken_away(sealed: Flask, column: str) -> None:
    with sealed.app_context():
        db.session.execute(text(f"UPDATE audit_events SET {column} = NULL WHERE number = 2"))
        db.session.commit()
    assert verify(sealed)[0]


def test_a_value_that_moves_to_the_next_column(sealed: Flask) -> None:
    with sealed.app_context():
        swap = "UPDATE audit_events SET user_id = client_id, client_id = user_id WHERE number = 2"
        db.session.execute(text(swap))
        db.session.commit()
    assert verify(sealed)[0]


@pytest.mark.parametrize("column", ENDS)
def test_each_end_of_the_chain(sealed: Flask, column: str) -> None:
    with sealed.app_context():
        before = db.session.get(AuditChain, 1)
        assert before
        old = getattr(before, column)
        new = old + 1 if isinstance(old, int) else "0" * 64
        db.session.execute(update(AuditChain).values({column: new}))
        db.session.commit()
    assert "forged" in verify(sealed)[0][0]
    happen(sealed, 1)
    assert verify(sealed)[0]  # and nothing is added to it as if it were whole


@pytest.mark.parametrize("first_kept", [2, 4])
def test_an_end_that_was_cut_off_is_seen(sealed: Flask, first_kept: int) -> None:
    """The ends are made to fit, without the key."""
    with sealed.app_context():
        rows = {
            row.number: row.seal
            for row in db.session.query(AuditEvent).filter_by(name=Event.EXPORTED)
        }
        last = first_kept - 1
        db.session.execute(text(f"DELETE FROM audit_events WHERE number >= {first_kept}"))
        db.session.execute(update(AuditChain).values(head_number=last, head_seal=rows[last]))
        db.session.commit()
    assert verify(sealed)[0]


def test_purging_stops_at_what_was_tampered_with(sealed: Flask, clock: Clock) -> None:
    clock.move(days=30)
    with sealed.app_context():
        db.session.execute(text("UPDATE audit_events SET name = 'harmless' WHERE number = 3"))
        db.session.commit()
        with pytest.raises(chain.ChainBroken):
            chain.purge(timedelta(days=1))
        db.session.rollback()
        assert db.session.query(AuditEvent).count() == 4
        assert chain.purge_due() == 0
        assert chain.purge(timedelta(days=1), over_faults=True) == 4


def test_purging_leaves_what_is_young(sealed: Flask, clock: Clock) -> None:
    clock.move(days=2)
    happen(sealed, 2)
    assert verify(sealed)[0] == []
    with sealed.app_context():
        assert chain.purge(timedelta(days=3)) == 0
        assert chain.purge(timedelta(days=1), at_most=3) == 3
        assert chain.purge(timedelta(days=1)) == 1
        assert chain.purge(timedelta(days=1)) == 0
    faults, _ = verify(sealed)
    assert faults == []


def test_a_noted_head(sealed: Flask) -> None:
    _, head = verify(sealed)
    number, seal = head.split(":")
    assert verify(sealed, "--head", head)[0] == []
    assert verify(sealed, "--head", f"{number}:{'0' * 64}")[0]
    assert verify(sealed, "--head", f"{int(number) + 1}:{seal}")[0]
    assert verify(sealed, "--head", f"{int(number) - 1}:{seal}")[0]
    happen(sealed, 1)
    assert verify(sealed, "--head", head)[0] == []


def test_a_noted_head_of_a_trail_that_is_gone(app: Flask, clock: Clock) -> None:
    assert verify(app)[0] == []
    assert verify(app, "--head", f"3:{'0' * 64}")[0]


def take(app: Flask, number: int) -> dict[str, object]:
    """A row, as anyone who can write to the database keeps it."""
    with app.app_context():
        statement = text("SELECT * FROM audit_events WHERE number = :number")
        return dict(db.session.execute(statement, {"number": number}).one()._mapping)


def put(app: Flask, row: dict[str, object]) -> None:
    with app.app_context():
        values = ", ".join(f":{name}" for name in row)
        statement = text(f"INSERT INTO audit_events ({', '.join(row)}) VALUES ({values})")
        db.session.execute(statement, row)
        db.session.commit()


def remove(app: Flask, number: int) -> None:
    with app.app_context():
        statement = text("DELETE FROM audit_events WHERE number = :number")
        db.session.execute(statement, {"number": number})
        db.session.commit()


@pytest.mark.parametrize(("later", "says_so"), [(0, False), (0, True), (1, False)])
def test_an_event_of_another_history(sealed: Flask, later: int, says_so: bool) -> None:
    """Sealed with the same key at the same place, before a backup was brought back."""
    with sealed.app_context():
        ends = dict(db.session.execute(text("SELECT * FROM audit_chain")).one()._mapping)
    happen(sealed, 1)
    assert verify(sealed)[0] == []
    other = take(sealed, 5)
    remove(sealed, 5)
    with sealed.app_context():
        db.session.execute(update(AuditChain).values(ends))
        db.session.commit()
    happen(sealed, 1 + later)
    assert verify(sealed)[0] == []
    remove(sealed, 5)
    put(sealed, other)
    if says_so:  # they write its seal to the end of the chain, too
        with sealed.app_context():
            db.session.execute(update(AuditChain).values(head_seal=other["seal"]))
            db.session.commit()
    assert verify(sealed)[0]


def test_an_event_behind_the_end(sealed: Flask) -> None:
    with sealed.app_context():
        ends = dict(db.session.execute(text("SELECT * FROM audit_chain")).one()._mapping)
    happen(sealed, 1)
    assert verify(sealed)[0] == []
    with sealed.app_context():
        db.session.execute(update(AuditChain).values(ends))
        db.session.commit()
    assert "event 5 lies behind the end of the chain" in verify(sealed)[0]


def test_an_event_that_was_purged_is_put_back(sealed: Flask, clock: Clock) -> None:
    old = take(sealed, 1)
    clock.move(days=2)
    with sealed.app_context():
        assert chain.purge(timedelta(days=1), at_most=2) == 2
    assert verify(sealed)[0] == []
    put(sealed, old)
    assert "event 1 lies before the beginning of the chain" in verify(sealed)[0]
