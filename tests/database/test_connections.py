"""Connections to SQLite that stay open between requests."""

from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, text

from sso import database
from sso.database import KeptConnections

pytestmark = pytest.mark.slow


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return database.open_engine(f"sqlite:///{tmp_path / 'a.db'}")


def write(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


def count(connection: Connection) -> int:
    return int(connection.scalar(text("SELECT count(*) FROM numbers")) or 0)


def test_a_connection_stays_open_and_sees_what_is_committed(engine: Engine) -> None:
    kept = KeptConnections(engine)
    write(engine, "CREATE TABLE numbers (n INTEGER)")
    with kept.take() as first, kept.take() as second:
        assert first is not second
        assert count(first) == count(second) == 0
    write(engine, "INSERT INTO numbers VALUES (1)")
    with kept.take() as again:
        assert again in (first, second)
        assert not again.in_transaction()
        assert count(again) == 1


def test_a_connection_that_failed_is_closed(engine: Engine) -> None:
    kept = KeptConnections(engine)
    with pytest.raises(ZeroDivisionError), kept.take() as failed:
        raise ZeroDivisionError
    assert failed.closed
    with kept.take() as other:
        assert other is not failed


def test_a_connection_that_is_gone_is_not_kept(engine: Engine) -> None:
    kept = KeptConnections(engine)
    with kept.take() as gone:
        gone.invalidate()
    with kept.take() as other:
        assert other is not gone


def test_what_is_not_committed_is_undone(engine: Engine) -> None:
    write(engine, "CREATE TABLE numbers (n INTEGER)")
    kept = KeptConnections(engine)
    with kept.take() as connection:
        connection.execute(text("INSERT INTO numbers VALUES (1)"))
    with kept.take() as again:
        assert again is connection
        assert count(again) == 0


def test_connections_are_closed_with_their_engine(engine: Engine) -> None:
    kept = KeptConnections(engine)
    with kept.take() as before:
        pass
    engine.dispose()
    assert before.closed
    with kept.take() as after:
        assert after is not before
