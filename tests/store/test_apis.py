"""Statements about APIs: a change reaches the clients of an API, however many there are."""

from collections.abc import Callable
from datetime import datetime

import pytest
from flask import Flask
from sqlalchemy import insert

from sso import audit, clock
from sso.extensions import db
from sso.models import Client
from sso.services import apis
from sso.store import apis as stored
from tests.support.factories import make_api, make_client
from tests.support.statements import watched

DOCS, MAPS = "https://docs.example", "https://maps.example"


def add_clients(app: Flask, count: int) -> list[str]:
    """Insert copies of a client that lists both APIs; return their ids."""
    model = make_client(app, apis=[f"{DOCS}=read", MAPS], default_api=DOCS, exchange_from=[DOCS])
    with app.app_context():
        row = db.session.get(Client, model.client_id)
        assert row is not None
        values = {
            "_client_metadata": row._client_metadata,
            "secret_digest": "",
            "updated_at": clock.now(),
        }
        ids = [f"copy-{number:05}" for number in range(count)]
        db.session.execute(insert(Client), [{"client_id": id_, **values} for id_ in ids])
        db.session.commit()
        return ids


def api_id(identifier: str) -> str:
    api = stored.find(identifier)
    assert api is not None
    return api.api_id


def change() -> None:
    apis.change(audit.SYSTEM, api_id(DOCS), {"scopes": {"read": "Read"}})


def disable() -> None:
    apis.disable(audit.SYSTEM, api_id(DOCS))


def delete() -> None:
    apis.delete(audit.SYSTEM, api_id(DOCS))


def statements(app: Flask, act: Callable[[], None]) -> int:
    """Return the number of statements of an action, whose transaction is rolled back."""
    names: list[str] = []
    with app.app_context(), audit.dry_run():
        with watched(db.engine, lambda statement, _: names.append(statement)):
            act()
            db.session.flush()
        db.session.rollback()
    return len(names)


@pytest.mark.parametrize("act", [change, disable, delete])
def test_the_statements_do_not_grow_with_the_clients(app: Flask, act: Callable[[], None]) -> None:
    make_api(app, DOCS)
    make_api(app, MAPS)
    add_clients(app, 2)
    few = statements(app, act)
    with app.app_context():
        ids = [f"more-{number}" for number in range(50)]
        row = db.session.get(Client, "copy-00000")
        assert row is not None
        values = {"_client_metadata": row._client_metadata, "secret_digest": ""}
        db.session.execute(insert(Client), [{"client_id": id_, **values} for id_ in ids])
        db.session.commit()
    assert statements(app, act) == few


def state(app: Flask, ids: list[str]) -> list[tuple[datetime, int]]:
    with app.app_context():
        rows = [db.session.get(Client, id_) for id_ in ids]
        return [(row.updated_at, row.version) for row in rows if row is not None]


@pytest.mark.parametrize("act", [change, disable, delete])
def test_each_client_of_the_api_counts_as_changed(app: Flask, act: Callable[[], None]) -> None:
    make_api(app, DOCS)
    make_api(app, MAPS)
    ids = add_clients(app, 3)
    other = make_client(app, apis=[MAPS]).client_id
    before, before_of_other = state(app, ids), state(app, [other])
    with app.app_context():
        act()
        db.session.commit()
    after = state(app, ids)
    assert len(after) == 3
    for (earlier, version), (later, next_version) in zip(before, after, strict=True):
        assert later > earlier
        assert next_version == version + 1
    assert state(app, [other]) == before_of_other


def test_a_deleted_api_leaves_no_entry(app: Flask) -> None:
    make_api(app, DOCS)
    make_api(app, MAPS)
    ids = add_clients(app, 3)
    with app.app_context():
        delete()
        db.session.commit()
    with app.app_context():
        for id_ in ids:
            row = db.session.get(Client, id_)
            assert row is not None
            assert (row.client_metadata["apis"], row.exchange_from) == ([MAPS], [])
            assert row.default_api is None
            assert row.name == "Books"
