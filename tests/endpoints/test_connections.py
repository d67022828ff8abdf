"""A request at the places that are hit most holds one connection, whatever becomes of it.

The ORM's session beside a `transaction` would be a second one: it would not see what the first has
written, and a pool of one connection a thread could run dry.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Connection, event

from sso import context
from sso.extensions import db
from sso.models import User
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty


class Held:
    """How many connections are out of the pool, and how many were at the same time."""

    now = most = 0

    def out(self, *_: Any) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def back(self, *_: Any) -> None:
        self.now -= 1

    def counted(self, take: Callable[[], AbstractContextManager[Connection]]) -> Any:
        @contextmanager
        def taken() -> Iterator[Connection]:
            self.out()
            with take() as connection:
                yield connection
            self.back()

        return taken


@pytest.fixture
def held(app: Flask, browser: Browser, client: RelyingParty, user: User) -> Iterator[Held]:
    """Counts from here on; somebody is signed in and has consented."""
    client.exchange(browser.approve(client).code)
    with app.app_context():
        context.key_ring().reload()
        pool = db.engine.pool
    held = Held()
    # These wait outside the pool.
    app.extensions["sso.connection"] = held.counted(app.extensions["sso.connection"])
    event.listen(pool, "checkout", held.out)
    event.listen(pool, "checkin", held.back)
    yield held
    event.remove(pool, "checkout", held.out)
    event.remove(pool, "checkin", held.back)
    assert (held.now, held.most) == (0, 1)


def test_the_code_flow(held: Held, browser: Browser, client: RelyingParty) -> None:
    tokens = client.exchange(browser.authorize(client).code).get_json()
    assert client.refresh(tokens["refresh_token"]).status_code == 200
    assert client.userinfo(tokens["access_token"]).status_code == 200


def test_reuse(held: Held, browser: Browser, client: RelyingParty, clock: Clock) -> None:
    code = browser.authorize(client).code
    tokens = client.exchange(code).get_json()
    refresh_token = tokens["refresh_token"]
    assert client.refresh(refresh_token).status_code == 200
    assert client.refresh(refresh_token).status_code == 200  # within the leeway
    clock.move(minutes=2)
    assert client.exchange(code).get_json()["error"] == "invalid_grant"
    assert client.refresh(refresh_token).get_json()["error"] == "invalid_grant"


def test_faults_at_the_token_endpoint(held: Held, client: RelyingParty) -> None:
    assert client.exchange("none").get_json()["error"] == "invalid_grant"
    assert client.refresh("none", client_secret="wrong").get_json()["error"] == "invalid_client"


@pytest.mark.parametrize(
    "more",
    [
        {"response_mode": "form_post"},
        {"prompt": "login"},
        {"prompt": "consent"},
        {"prompt": "none", "max_age": "0"},
        {"acr_values": "2"},
        {"redirect_uri": "https://elsewhere.example/"},
        {"scope": "nothing"},
        {"client_id": "nobody"},
        {"id_token_hint": "eyJ"},
    ],
    ids=str,
)
def test_authorization_requests(
    held: Held, browser: Browser, client: RelyingParty, more: dict[str, str]
) -> None:
    browser.authorize(client, **more)


def test_an_answer_stands_though_the_connection_is_gone(
    app: Flask,
    browser: Browser,
    client: RelyingParty,
    user: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser.approve(client)

    def is_gone(_connection: Any) -> None:
        raise dialect.loaded_dbapi.OperationalError("the server closed the connection")

    with app.app_context():
        dialect = db.engine.dialect
    monkeypatch.setattr(dialect, "do_rollback", is_gone)
    page = browser.authorize(client, response_type="token")
    assert page.parameters["error"] == "unsupported_response_type"
    assert client.exchange("none").get_json()["error"] == "invalid_grant"
