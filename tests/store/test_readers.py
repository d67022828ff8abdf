"""Connections to SQLite that stay open between requests."""

from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, text

from sso import database
from sso.database import OpenReaders


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return database.open_engine(f"sqlite:///{tmp_path / 'a.db'}")


def write(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


def count(connection: Connection) -> int:
    return int(connection.scalar(text("SELECT count(*) FROM numbers")) or 0)


def test_a_reader_stays_open_and_sees_what_is_committed(engine: Engine) -> None:
    readers = OpenReaders(engine)
    write(engine, "CREATE TABLE numbers (n INTEGER)")
    with readers.reader() as first, readers.reader() as second:
        assert first is not second
        assert count(first) == count(second) == 0
    write(engine, "INSERT INTO numbers VALUES (1)")
    with readers.reader() as again:
        assert again in (first, second)
        assert not again.in_transaction()
        assert count(again) == 1


def test_a_reader_that_failed_is_closed(engine: Engine) -> None:
    readers = OpenReaders(engine)
    with pytest.raises(ZeroDivisionError), readers.reader() as failed:
        raise ZeroDivisionError
    assert failed.closed
    with readers.reader() as other:
        assert other is not failed


def test_readers_are_closed_with_their_engine(engine: Engine) -> None:
    readers = OpenReaders(engine)
    with readers.reader() as before:
        pass
    engine.dispose()
    assert before.closed
    with readers.reader() as after:
        assert after is not before
