"""Statements that go past SQLAlchemy's execution: the same rows, the same exceptions."""

from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import BindParameter, Executable, bindparam, delete, insert, select, text, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from sso import clock, database
from sso.extensions import db
from sso.models import BrowserSession, Mail, User
from sso.services import transaction
from sso.store import prepared
from sso.store.prepared import compiled
from tests.support.actors import Browser, RelyingParty
from tests.support.statements import watched

_USERS = prepared.table(User)
_ONE = _USERS.c.id == bindparam("given")


def test_every_row_is_as_sqlalchemy_reads_it(
    app: Flask, user: User, client: RelyingParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, compared = prepared.first, []

    def both(on: Any, statement: Executable, values: dict[str, Any]) -> Any:
        found = first(on, statement, values)
        expected = on.execute(statement, values).mappings().first()
        assert found == (dict(expected) if expected else None)
        for label, value in (found or {}).items():
            assert type(value) is type(expected[label])
        compared.append(statement)
        return found

    monkeypatch.setattr(prepared, "first", both)
    browser = Browser(app)
    tokens = client.exchange(browser.approve(client).code).get_json()
    tokens = client.exchange(browser.authorize(client).code).get_json()
    tokens = client.refresh(tokens["refresh_token"]).get_json()
    assert client.userinfo(tokens["access_token"]).get_json()["name"] == user.name
    assert len(set(compared)) >= 5


def test_a_fault_is_sqlalchemys(app: Flask, user: User) -> None:
    with app.app_context(), transaction.Transaction() as under_way:
        on = under_way.connection
        found = prepared.first(on, select(_USERS).where(_ONE), {"given": user.id})
        assert found is not None
        with pytest.raises(IntegrityError) as raised:
            prepared.changed(on, insert(_USERS), {**found, "id": uuid4()})
        assert str(user.password_hash) not in str(raised.value)  # which the log would get
    nowhere = text("SELECT * FROM nowhere").columns(_USERS.c.id)
    with app.app_context(), pytest.raises(SQLAlchemyError, match="nowhere"):
        prepared.first(db.session.connection(), nowhere, {})


def test_a_connection_that_is_gone_is_sqlalchemys_fault_too(app: Flask) -> None:
    with app.app_context(), transaction.Transaction() as under_way:
        connection = under_way.connection
        assert connection.connection.driver_connection
        connection.connection.driver_connection.close()
        with pytest.raises(SQLAlchemyError):
            prepared.first(connection, select(_USERS).where(_ONE), {"given": uuid4()})


def test_how_many_rows_were_written(app: Flask, user: User) -> None:
    changed_at: BindParameter[Any] = bindparam("changed_at")
    named = update(_USERS).values(name="Dana", updated_at=changed_at)
    statement = named.where(_ONE)
    with app.app_context(), transaction.Transaction() as under_way:
        on, values = under_way.connection, {"given": user.id, "changed_at": clock.now()}
        assert prepared.changed(on, statement, values)
        assert not prepared.changed(on, statement, {**values, "given": uuid4()})
        under_way.commit()
    with app.app_context():
        assert db.session.scalar(select(User.name)) == "Dana"


def test_what_the_session_has_not_written_yet_is_seen(app: Flask, user: User) -> None:
    """As by a statement of the session itself."""
    with app.app_context():
        found = db.session.get(User, user.id)
        assert found
        found.name = "Somebody else"
        on = database.session_connection()
        seen = prepared.first(on, select(_USERS.c.name).where(_ONE), {"given": user.id})
        assert seen == {"name": "Somebody else"}


def test_what_is_not_committed_is_undone(app: Flask, user: User) -> None:
    with app.app_context():
        with transaction.Transaction() as under_way:
            prepared.changed(under_way.connection, delete(_USERS).where(_ONE), {"given": user.id})
        assert db.session.scalar(select(User.id)) == user.id


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (insert(prepared.table(BrowserSession)), {"id": uuid4(), "digest": "x"}),
        (select(_USERS.c.id).where(_USERS.c.id.in_(bindparam("ids", expanding=True))), {"ids": []}),
    ],
)
def test_what_needs_more_is_refused(app: Flask, statement: Any, values: dict[str, Any]) -> None:
    with app.app_context(), pytest.raises(TypeError):
        compiled(statement, db.engine.dialect, values)


def test_the_first_write_begins_a_transaction(app: Flask, user: User) -> None:
    with app.app_context(), database.connection() as on:
        found = prepared.first(on, select(_USERS.c.name).where(_ONE), {"given": user.id})
        assert found
        assert not on.in_transaction()
        assert prepared.changed(on, delete(_USERS).where(_ONE), {"given": user.id})
        assert on.in_transaction()
    with app.app_context():
        assert db.session.scalar(select(User.id)) == user.id


@pytest.mark.parametrize("is_first", [True, False])
def test_a_write_that_is_alone_needs_no_transaction(app: Flask, user: User, is_first: bool) -> None:
    """After another one it is part of its transaction; on SQLite there is always one."""
    changed_at: BindParameter[Any] = bindparam("changed_at")
    statement = update(_USERS).values(name="Dana", updated_at=changed_at).where(_ONE)
    values = {"given": user.id, "changed_at": clock.now()}
    with app.app_context(), database.connection() as on:
        if not is_first:
            prepared.changed(on, statement, {**values, "given": uuid4()})
        assert prepared.changed_at_once(on, statement, values)
    with app.app_context():
        counts = is_first and db.engine.dialect.name == "postgresql"
        assert db.session.scalar(select(User.name)) == ("Dana" if counts else user.name)


@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_a_new_object_is_as_the_orm_adds_it(app: Flask, user: User, is_rolled_back: bool) -> None:
    fields: dict[str, Any] = {"kind": "reset", "address": "dana@example.com"}
    with app.app_context():
        usual, mail = Mail(**fields), Mail(**fields, details={"a": ["ü"]})
        db.session.add(usual)
        prepared.add(mail)  # writes the other one first
        with watched(db.engine, lambda *_: pytest.fail("it is read again")):
            assert mail.details == {"a": ["ü"]}
            assert (mail.attempts, mail.user_id, mail.last_fault) == (0, None, None)
            assert mail.next_attempt_at is not None
            assert mail.created_at >= usual.created_at
        mail.attempts = 3
        if is_rolled_back:
            db.session.rollback()
        else:
            db.session.commit()
        rows = db.session.scalars(select(Mail).order_by(Mail.attempts)).all()
        assert [row.attempts for row in rows] == ([] if is_rolled_back else [0, 3])
        if rows:
            db.session.refresh(mail)
            assert mail.details == {"a": ["ü"]}
            assert usual.details == {}
            db.session.delete(mail)
            db.session.commit()
            assert db.session.scalars(select(Mail)).all() == [usual]


def test_an_object_that_breaks_a_rule_is_refused(app: Flask, user: User) -> None:
    with app.app_context(), pytest.raises(IntegrityError):
        prepared.add(User(email=user.email, name="Another"))
