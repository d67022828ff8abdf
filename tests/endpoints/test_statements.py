"""How many SQL statements and commits a request takes: counts, not times."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from flask import Flask
from sqlalchemy import event

from sso.extensions import db
from sso.models import User
from tests.conftest import ON_POSTGRESQL, Statements
from tests.support import connections
from tests.support.actors import Browser, RelyingParty
from tests.support.exchanges import Chain
from tests.support.factories import make_api, make_client
from tests.support.proofs import DPoP

# PostgreSQL redeems and stores, or stores grant and code, by one statement without transaction.
ONE_TO_WRITE = (2, 0) if ON_POSTGRESQL else (3, 1)
Count = Callable[[], AbstractContextManager[Statements]]


@pytest.fixture(autouse=True)
def _warm(browser: Browser, client: RelyingParty, user: User) -> None:
    """A live session, a remembered consent, and a key ring that was read."""
    client.exchange(browser.approve(client).code)


def test_authorize_with_session_and_consent(
    browser: Browser, client: RelyingParty, statements: Count
) -> None:
    with statements() as seen:
        page = browser.authorize(client)
    assert page.code
    assert (len(seen), seen.commits) == ONE_TO_WRITE


def test_code_exchange(browser: Browser, client: RelyingParty, statements: Count) -> None:
    code = browser.authorize(client).code
    with statements() as seen:
        assert client.exchange(code).status_code == 200
    assert (len(seen), seen.commits) == ONE_TO_WRITE


def test_refresh(browser: Browser, client: RelyingParty, statements: Count) -> None:
    tokens = client.exchange(browser.authorize(client).code).get_json()
    with statements() as seen:
        assert client.refresh(tokens["refresh_token"]).status_code == 200
    assert (len(seen), seen.commits) == ONE_TO_WRITE


def test_a_resource_costs_no_statement(
    app: Flask, browser: Browser, user: User, statements: Count
) -> None:
    """The APIs of a client are read once, until one of them or the client changes."""
    client = make_client(app, apis=[make_api(app)])
    client.exchange(
        browser.approve(client, resource="https://docs.example", scope="read write").code
    )
    with statements() as authorized:
        code = browser.authorize(client, resource="https://docs.example", scope="read write").code
    with statements() as exchanged:
        tokens = client.exchange(code).get_json()
    with statements() as refreshed:
        assert client.refresh(tokens["refresh_token"]).get_json()["scope"] == "read write"
    for seen in (authorized, exchanged, refreshed):
        assert (len(seen), seen.commits) == ONE_TO_WRITE


def test_an_exchange_of_a_token(app: Flask, browser: Browser, statements: Count) -> None:
    """It finds the client, the subject token and the scopes of its API, and stores the row."""
    chain = Chain(app, browser)
    chain.exchanged()
    with statements() as seen:
        chain.exchanged()
    assert (len(seen), seen.commits) == (4, 0 if ON_POSTGRESQL else 1)


def test_userinfo(browser: Browser, client: RelyingParty, statements: Count) -> None:
    tokens = client.exchange(browser.authorize(client).code).get_json()
    with statements() as seen:
        assert client.userinfo(tokens["access_token"]).status_code == 200
    assert (len(seen), seen.commits) == (1, 0)


def test_with_dpop_it_is_one_more_on_sqlite(
    browser: Browser, client: RelyingParty, statements: Count
) -> None:
    key, code = DPoP(), browser.authorize(client).code
    with_proof = ONE_TO_WRITE if ON_POSTGRESQL else (4, 1)
    with statements() as seen:
        tokens = client.exchange(code, key.header()).get_json()
    assert (len(seen), seen.commits) == with_proof
    with statements() as seen:
        assert client.refresh(tokens["refresh_token"], key.header()).status_code == 200
    assert (len(seen), seen.commits) == with_proof
    with statements() as seen:
        assert key.userinfo(client, tokens["access_token"]).status_code == 200
    assert (len(seen), seen.commits) == (2, 0 if ON_POSTGRESQL else 1)


def test_pushed_requests(browser: Browser, client: RelyingParty, statements: Count) -> None:
    with statements() as seen:
        uri = client.push().get_json()["request_uri"]
    assert (len(seen), seen.commits) == (2, 0 if ON_POSTGRESQL else 1)
    query = {"client_id": client.client_id, "request_uri": uri}
    with statements() as seen:
        assert browser.open_authorize(query).code
    # It is read together with the session; PostgreSQL uses it up together with the rest.
    assert (len(seen), seen.commits) == ((2, 0) if ON_POSTGRESQL else (4, 1))
    with statements() as seen:
        uri = client.push(DPoP().header("/oauth2/par")).get_json()["request_uri"]
    assert (len(seen), seen.commits) == (3, 1)
    for more in (1, 0):  # it is kept for a user who has to sign in, once
        with statements() as seen:
            Browser(client.app).open_authorize({**query, "request_uri": uri})
        assert len([one for one in seen if not one.lstrip().startswith("SELECT")]) == more


def test_an_anonymous_request_writes_nothing(client: RelyingParty, statements: Count) -> None:
    with statements() as seen:
        page = Browser(client.app).authorize(client)
    assert page.path.endswith("/sign-in")
    assert all(one.lstrip().startswith("SELECT") for one in seen)
    with statements() as seen:
        Browser(client.app).open(page.url)
    assert (len(seen), seen.commits) == (2, 0)  # the client, and its logo


def test_pages_hold_one_connection(browser: Browser, client: RelyingParty) -> None:
    """At each statement, with a kept connection that is lent (see `database.kept_connections`)."""
    with client.app.app_context():
        engine = db.engine
    held = []

    def note(*_: object) -> None:
        held.append(connections.held(client.app))

    uri = client.push().get_json()["request_uri"]
    stranger = Browser(client.app).open_authorize(
        {"client_id": client.client_id, "request_uri": uri}
    )
    event.listen(engine, "before_cursor_execute", note)
    try:
        page = Browser(client.app).open(stranger.url)
        assert "password" in page.fields
        page = browser.authorize(client, prompt="login")
        assert "password" in page.fields
        page = browser.open(stranger.url)  # goes on, since this browser is signed in
        assert page.code
        page = browser.open(stranger.url)  # used, so its request is no longer there
        assert page.status == 400
        page = browser.open_authorize({"client_id": client.client_id, "request_uri": uri})
        assert page.status == 400
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert max(held) == 1
