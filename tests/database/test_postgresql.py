"""On PostgreSQL what only read is committed, so that psycopg keeps what it has prepared."""

from collections.abc import Callable

import pytest
from flask import Flask
from sqlalchemy import bindparam, delete, text
from sqlalchemy.exc import SQLAlchemyError

from sso import database
from sso.extensions import db
from sso.models import User
from sso.store import prepared
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.events import events
from tests.support.factories import make_client, make_user

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]


def prepared_statements(app: Flask) -> int:
    """How many the connections have that the next requests will use."""
    count = text("SELECT count(*) FROM pg_prepared_statements")
    with app.app_context(), db.engine.connect() as of_pages, database.connection() as of_programs:
        return sum(int(each.scalar(count) or 0) for each in (of_pages, of_programs))


def test_what_is_prepared_outlives_a_page(app: Flask) -> None:
    make_user(app)
    client, browser = make_client(app, first_party=True), Browser(app)
    browser.sign_in()
    for _ in range(8):  # psycopg prepares what comes more often than five times
        assert browser.authorize(client).code
    before = prepared_statements(app)
    assert before
    for path in ("sign-in", "account", "no-such-page"):
        browser.open(f"{ORIGIN}{BASE}/{path}")
        assert prepared_statements(app) >= before


def by_the_driver() -> None:
    """By the module that leaves SQLAlchemy out."""
    statement = delete(prepared.table(User)).where(User.email == bindparam("address"))
    connection = database.session_connection()
    assert prepared.changed(connection, statement, {"address": "dana@example.com"})


def by_unit_of_work() -> None:
    db.session.query(User).one().name = "Eve"
    db.session.flush()


def after_a_failure() -> None:
    by_unit_of_work()
    with pytest.raises(SQLAlchemyError):
        db.session.execute(text("SELECT 1/0"))


WRITES: dict[str, Callable[[], object]] = {
    "unit of work": by_unit_of_work,
    "the driver": by_the_driver,
    "after a failure": after_a_failure,
    **{
        sql: lambda sql=sql: db.session.execute(text(sql))  # type: ignore[misc]
        for sql in (
            "UPDATE users SET name = 'Eve'",
            " update users SET name = 'Eve'",
            "DELETE FROM users",
            "WITH changed AS (UPDATE users SET name = 'Eve' RETURNING 1) SELECT * FROM changed",
        )
    },
}


@pytest.mark.parametrize("write", WRITES)
def test_what_was_written_is_undone(app: Flask, write: str) -> None:
    make_user(app)
    with app.app_context():
        WRITES[write]()
        database.end_session()
    with app.app_context():
        # Once more, after a transaction of the same connection that only read.
        assert db.session.query(User).one().name != "Eve"
        database.end_session()
        WRITES[write]()
        database.end_session()
        assert db.session.query(User).one().name != "Eve"


def test_a_changed_type_ends_no_more_than_a_request(own_tables: Flask) -> None:
    """A migration that changes the type of a column makes prepared statements of it fail."""
    app = own_tables
    make_user(app)
    client, browser = make_client(app, first_party=True), Browser(app)
    browser.sign_in()
    for _ in range(8):
        assert browser.authorize(client).code
    with app.app_context(), db.engine.connect(), db.engine.begin() as another:
        another.execute(text("ALTER TABLE clients ALTER COLUMN client_id TYPE VARCHAR(256)"))
    page = browser.authorize(client)
    assert (page.status, page.headers["Retry-After"]) == (503, "5")
    assert browser.authorize(client).code


@pytest.mark.parametrize("email", ["dana@example.com\0", "\0", "da\0na@example.com"])
def test_nobody_has_an_email_address_that_the_database_cannot_hold(app: Flask, email: str) -> None:
    make_user(app)
    page = Browser(app).sign_in(email)
    assert (page.status, page.path) == (200, f"{BASE}/sign-in")
    assert "wrong" in page.html
    assert [event["reason"] for event in events(app, "sign_in_failed")] == ["unknown"]
