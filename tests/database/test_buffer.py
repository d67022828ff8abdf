"""The buffer that audit events and refusals wait in: no row in it stops the others."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Connection, Engine, NullPool, event, text
from sqlalchemy.exc import DataError, OperationalError

from sso import database
from sso.database import buffer as module
from sso.database.buffer import Buffer
from sso.extensions import db
from tests.support.processes import wait_for

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "error", [DataError("", {}, Exception("too long")), ValueError("surrogates"), TypeError("x")]
)
def test_a_row_that_can_never_be_written(
    app: Flask, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It is lost alone, and what comes later is written, too."""
    written: list[str] = []

    def write(_: Connection, rows: Sequence[str]) -> None:
        if "bad" in rows:
            raise error
        written.extend(rows)

    with app.app_context():
        buffer = Buffer(db.engine, write, "things")
    with buffer._writing:  # the thread waits
        buffer.put(["a", "bad", "b"])
    assert buffer.flush()
    assert written == ["a", "b"]
    assert "1 of the things cannot be written" in caplog.text
    buffer.put(["c"])
    assert buffer.flush()
    assert written == ["a", "b", "c"]


def test_what_passes_by_itself_loses_nothing(app: Flask) -> None:
    """Also between the rows of a batch that are tried one by one: none is written twice."""
    written: list[str] = []
    is_down = False

    def write(_: Connection, rows: Sequence[str]) -> None:
        nonlocal is_down
        if is_down:
            raise OperationalError("", {}, Exception("gone"))
        if "bad" in rows:
            raise ValueError
        written.extend(rows)
        is_down = True

    with app.app_context():
        buffer = Buffer(db.engine, write, "things")
    with buffer._writing:
        buffer.put(["a", "bad", "b"])
    assert not buffer.flush()
    assert written == ["a"]
    is_down = False
    assert not buffer.flush() or written == ["a", "b"]
    is_down = False
    assert buffer.flush()
    assert written == ["a", "b"]


@pytest.fixture
def engine(app: Flask) -> Iterator[Engine]:
    with app.app_context():
        engine = database.open_engine(db.engine.url, poolclass=NullPool)
    yield engine
    engine.dispose()


Opened = list[Any]


@pytest.fixture
def opened(engine: Engine) -> Opened:
    """The connections that were opened, and are open."""
    found: Opened = []
    event.listen(engine, "connect", lambda driver, _: found.append(driver))
    event.listen(engine, "close", lambda driver, _: found.remove(driver))
    return found


@pytest.fixture
def put(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have the thread write a row, and wait until it has."""
    monkeypatch.setattr(module, "PAUSE", 0.02)
    written: list[str] = []

    def write(connection: Connection, rows: Sequence[str]) -> None:
        connection.execute(text("SELECT 1"))
        written.extend(rows)

    buffer = Buffer(engine, write, "things")

    def put_one(row: str) -> None:
        buffer.put([row])
        wait_for(lambda: row in written, "the row")

    return put_one


def test_a_burst_has_one_connection(
    put: Callable[[str], None],
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "BURST_ENDS", 60)
    put("a")
    (first,) = opened
    put("b")
    assert opened == [first]

    first.close()  # cut off meanwhile: the next row takes another one, and nobody is alarmed
    put("c")
    assert opened != [first]
    assert not caplog.messages

    monkeypatch.setattr(module, "BURST_ENDS", 0)
    wait_for(lambda: not opened, "the connection is closed")


def test_what_others_have_written_needs_no_connection(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.2)
    connected: list[int] = []
    event.listen(engine, "connect", lambda *_: connected.append(1))
    buffer: Buffer[str] = Buffer(engine, lambda *_: None, "things")
    buffer.put(["a"])
    assert buffer.flush()
    wait_for(lambda: buffer._thread is None, "the end of the thread")
    assert len(connected) == 1


def test_a_process_without_rows_has_no_connection(
    put: Callable[[str], None], opened: Opened
) -> None:
    for row in ("a", "b"):
        put(row)
        wait_for(lambda: not opened, "the connection is closed")
