"""The buffer that audit events and refusals wait in: no row in it stops the others."""

from collections.abc import Sequence

import pytest
from flask import Flask
from sqlalchemy import Connection
from sqlalchemy.exc import DataError, OperationalError

from sso.database.buffer import Buffer
from sso.extensions import db


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
