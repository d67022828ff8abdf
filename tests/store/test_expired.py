"""Purging: what reuse has to be seen by stays, the rest goes."""

from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.jobs import purge as purging
from sso.models import AuthorizationCode, BrowserSession, Grant, Token, User
from tests.actors import Browser, RelyingParty
from tests.conftest import Clock


def purge(app: Flask) -> dict[str, int]:
    with app.app_context():
        return purging.purge()


def rows(app: Flask) -> list[int]:
    tables = (Token, AuthorizationCode, Grant, BrowserSession)
    with app.app_context():
        return [db.session.scalar(select(func.count()).select_from(t)) or 0 for t in tables]


def test_everything_goes_in_the_end(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    code = browser.approve(client).code
    tokens = client.exchange(code).get_json()
    client.refresh(tokens["refresh_token"])
    before = rows(app)
    assert before == [2, 1, 1, 1]
    purge(app)
    assert rows(app) == before
    clock.move(days=20)  # the session is over, the refresh token could live on
    purge(app)
    assert rows(app) == [2, 1, 1, 0]
    assert client.exchange(code).get_json()["error"] == "invalid_grant"
    clock.move(days=12)
    purge(app)
    assert rows(app) == [0, 0, 0, 0]


def test_reuse_is_seen_as_long_as_it_matters(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    successor = client.refresh(tokens["refresh_token"]).get_json()
    clock.move(days=10)
    purge(app)
    assert client.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert client.refresh(successor["refresh_token"]).get_json()["error"] == "invalid_grant"
