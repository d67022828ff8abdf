"""On SQLite a transaction takes the right to write with its first writing statement, not later."""

import sqlite3

import pytest
from flask import Flask
from sqlalchemy import text

from sso.extensions import db


def others_may_write() -> bool:
    other = sqlite3.connect(str(db.engine.url.database), timeout=0, isolation_level=None)
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
@pytest.mark.parametrize("empty_app", ["sqlite"], indirect=True)
def test_when_the_transaction_begins(app: Flask, statement: str, free: bool) -> None:
    with app.app_context():
        db.session.execute(text(statement))
        assert others_may_write() is free
        db.session.rollback()
        assert others_may_write()
