"""A definition is deleted while values and claims from it are set, on every database."""

from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import pytest
from flask import Flask
from sqlalchemy.exc import OperationalError

from sso import audit
from sso.extensions import db
from sso.services import accounts, attributes, clients
from sso.services.checks import Invalid
from sso.store import attributes as stored
from sso.store import clients as stored_clients
from sso.store import users
from tests.support.factories import make_attribute, make_client, make_user

OLGA = audit.Actor("olga")
ROUNDS = 6


@pytest.fixture
def app(app_on_each: Flask) -> Flask:
    return app_on_each


def at_once(app: Flask, *calls: Callable[[], object]) -> list[Any]:
    """Return the error of each call, or `None`; all begin together and commit."""
    barrier, errors = Barrier(len(calls)), [None] * len(calls)

    def run(number: int) -> None:
        with app.app_context():
            barrier.wait(10)
            try:
                calls[number]()
                db.session.commit()
            except Exception as error:
                errors[number] = error  # type: ignore[call-overload]  # the list begins with None
                db.session.rollback()

    threads = [Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return errors


@pytest.mark.parametrize("setter", ["person", "operator", "several"])
def test_no_value_outlives_its_definition(app: Flask, setter: str) -> None:
    ids = [make_user(app, f"u{number}@example.com").id for number in range(3)]

    def set_value() -> None:
        if setter == "person":
            attributes.set_own(audit.USER, ids[0], {"level": 1})
        elif setter == "operator":
            accounts.update(OLGA, ids[0], attributes={"level": 1}, name="Dana")
        else:
            for user_id in ids:
                attributes.set_values(OLGA, user_id, {"level": 1})

    for _ in range(ROUNDS):
        make_attribute(app, "level", "number", writers=["person"])
        deleting, setting = at_once(app, lambda: attributes.delete(OLGA, "level"), set_value)
        # SQLite refuses to write on an old snapshot; nothing is written then.
        assert isinstance(setting, Invalid | OperationalError | None), setting
        assert isinstance(deleting, OperationalError | None), deleting
        with app.app_context():
            if stored.find("level"):
                attributes.delete(OLGA, "level")
                db.session.commit()
            for user_id in ids:
                row = users.find(user_id)
                assert row is not None
                assert row.attributes == {}


def test_no_claim_outlives_its_attribute(app: Flask) -> None:
    client_id = make_client(app).client_id
    entry = {"own_claims": ["x=attribute:level"]}
    for _ in range(ROUNDS):
        make_attribute(app, "level")
        deleting, changing = at_once(
            app,
            lambda: attributes.delete(OLGA, "level"),
            lambda: clients.change(OLGA, client_id, entry),
        )
        assert isinstance(deleting, Invalid | OperationalError | None), deleting
        assert isinstance(changing, Invalid | OperationalError | None), changing
        with app.app_context():
            row = stored_clients.find(client_id)
            assert row is not None
            assert bool(row.own_claims) <= (stored.find("level") is not None)
            clients.change(OLGA, client_id, {"own_claims": []})
            if stored.find("level"):
                attributes.delete(OLGA, "level")
            db.session.commit()
