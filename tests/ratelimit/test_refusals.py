"""What strangers are refused is on the trail, and cannot fill it."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from flask import Flask

from sso.models import User
from sso.ratelimit import refusals
from tests.conftest import Statements
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.events import events
from tests.support.factories import make_client


def foreign(token: str) -> str:
    """Our token with one letter of its signature changed."""
    return token[:-3] + ("A" if token[-3] != "A" else "B") + token[-2:]


@pytest.mark.parametrize("kind", ["garbage", "changed", "another server's"])
def test_a_token_that_is_not_ours(
    app: Flask, browser: Browser, client: RelyingParty, user: User, kind: str
) -> None:
    ours = client.exchange(browser.approve(client).code).get_json()["access_token"]
    unsigned = "eyJhbGciOiJub25lIn0.eyJqdGkiOiJ4In0."
    token = {"garbage": "x" * 40, "changed": foreign(ours), "another server's": unsigned}[kind]
    assert client.userinfo(token).status_code == 401
    (told,) = events(app, "access_token_refused")
    assert (told["error"], told["address"]) == ("invalid_token", "127.0.0.1")
    assert token not in str(told)


def test_another_clients_token(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    other = make_client(app, name="Other")
    assert other.introspect(tokens["access_token"]).get_json() == {"active": False}
    assert other.introspect("x" * 40).get_json() == {"active": False}
    assert other.revoke(tokens["refresh_token"]).status_code == 200
    assert client.introspect(tokens["refresh_token"]).get_json()["active"] is True
    told = events(app, "token_refused")
    places = ["introspection", "introspection", "revocation"]
    assert [one["at"] for one in told] == places
    assert {one["client"] for one in told} == {other.client_id}


def test_a_refused_token_costs_two_statements(
    client: RelyingParty, statements: Callable[[], AbstractContextManager[Statements]]
) -> None:
    with statements() as seen:
        client.userinfo("eyJhbGciOiJub25lIn0.eyJqdGkiOiJ4In0.")
    assert len([one for one in seen if "audit" not in one]) == 2
    with statements() as seen:
        client.userinfo("x" * 40)
    assert [one for one in seen if "audit" not in one] == []


@pytest.mark.parametrize("path", ["account", "sign-in", "sign-out", "account/factors"])
def test_a_post_without_the_token(app: Flask, browser: Browser, user: User, path: str) -> None:
    browser.sign_in()
    form = {"action": "end_all_sessions", "decision": "sign_out", "password": "x"}
    browser.http.post(f"{BASE}/{path}", data=form, base_url=ORIGIN)
    (told,) = events(app, "csrf_refused")
    assert told["path"] == f"{BASE}/{path}"
    assert "missing" in told["description"]


def test_at_end_session(app: Flask, browser: Browser, user: User) -> None:
    """Where the token is looked at by the view alone."""
    browser.sign_in()
    data = {"decision": "sign_out"}
    browser.http.post(f"{BASE}/oauth2/end-session", data=data, base_url=ORIGIN)
    assert browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/account")
    assert len(events(app, "csrf_refused")) == 1


def test_with_the_token_nothing_is_told(app: Flask, browser: Browser, user: User) -> None:
    browser.sign_in()
    browser.open(f"{ORIGIN}{BASE}/account")
    browser.submit(action="end_other_sessions")
    browser.open(f"{ORIGIN}{BASE}/oauth2/end-session")
    browser.submit(decision="sign_out")
    assert events(app, "csrf_refused") == []


def test_a_flood_of_posts(app: Flask, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "AN_HOUR", 10)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    for number in range(50):
        data = {"email": f"{number}"}
        browser.http.post(f"{BASE}/sign-in", data=data, base_url=ORIGIN)
    assert len(events(app, "csrf_refused")) == 10
