"""On SQLite a transaction takes the right to write with its first writing statement, not later."""

import sqlite3

import pytest
from flask import Flask
from sqlalchemy import text

from sso import database
from sso.extensions import db

pytestmark = pytest.mark.slow


def others_may_write() -> bool:
    # Only what is there: the name of a PostgreSQL database would be made a file.
    address = f"file:{db.engine.url.database}?mode=rw"
    other = sqlite3.connect(address, uri=True, timeout=0, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    finally:
        other.close()
    return True


@pytest.mark.parametrize(
    ("statement", "free"),
    [
        ("SELECT 1 FROM users", True),
        ("UPDATE users SET name = name WHERE 1 = 0", False),
        ("DELETE FROM users WHERE 1 = 0", False),
        ("INSERT INTO clients SELECT * FROM clients WHERE 1 = 0", False),
    ],
)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_when_the_transaction_begins(app: Flask, statement: str, free: bool) -> None:
    with app.app_context():
        db.session.execute(text(statement))
        assert others_may_write() is free
        db.session.rollback()
        assert others_may_write()


def test_a_switch_to_wal_that_meets_another_is_tried_again() -> None:
    class Cursor:
        """Says what SQLite says, rarely, to one of two that switch at once."""

        def __init__(self, refusals: list[str]) -> None:
            self.refusals, self.done = refusals, False

        def execute(self, _: str) -> None:
            if self.refusals:
                raise sqlite3.OperationalError(self.refusals.pop())
            self.done = True

    cursor = Cursor(["database is locked"] * 3)
    database._switch_to_wal(cursor)  # type: ignore[arg-type]
    assert cursor.done
    with pytest.raises(sqlite3.OperationalError, match="disk"):
        database._switch_to_wal(Cursor(["disk I/O error"]))  # type: ignore[arg-type]
