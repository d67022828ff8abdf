"""Cross-origin requests: metadata is open to all, tokens to the origins of public clients."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso import audit
from sso.config import urls
from sso.extensions import db
from sso.models import User
from sso.services import clients
from tests.conftest import Statements
from tests.support.actors import BASE, Browser, RelyingParty
from tests.support.factories import make_client

OPEN = [
    f"{BASE}/.well-known/openid-configuration",
    f"/.well-known/oauth-authorization-server{BASE}",
    f"{BASE}/oauth2/jwks",
]
TOKENS = [f"{BASE}/oauth2/token", f"{BASE}/oauth2/userinfo", f"{BASE}/oauth2/revoke"]
CLOSED = [f"{BASE}/oauth2/authorize", f"{BASE}/sign-in", f"{BASE}/oauth2/introspect"]
SPA = "https://app.example"
PREFLIGHT = {"Access-Control-Request-Method": "POST"}


@pytest.fixture
def spa(app: Flask) -> RelyingParty:
    redirect_uris = [f"{SPA}/callback", "http://localhost:5173/callback", "com.example.app:/cb"]
    return make_client(app, redirect_uris=redirect_uris, public=True)


def preflight(app: Flask, path: str, origin: str) -> TestResponse:
    return app.test_client().options(path, headers={"Origin": origin, **PREFLIGHT})


def allowed(answer: TestResponse) -> str | None:
    assert "Access-Control-Allow-Credentials" not in answer.headers
    return answer.headers.get("Access-Control-Allow-Origin")


@pytest.mark.parametrize("path", OPEN)
def test_metadata_is_open(app: Flask, path: str) -> None:
    for origin in (SPA, "null"):
        assert allowed(preflight(app, path, origin)) == "*"
        assert allowed(app.test_client().get(path, headers={"Origin": origin})) == "*"


@pytest.mark.parametrize("path", TOKENS)
def test_a_preflight_of_a_registered_origin(app: Flask, spa: RelyingParty, path: str) -> None:
    for origin in (SPA, "http://localhost:5173", "http://localhost:5174"):
        answer = preflight(app, path, origin)
        assert answer.status_code == 200
        assert allowed(answer) == origin
        assert answer.headers["Access-Control-Allow-Headers"] == "Authorization, Content-Type, DPoP"
        assert "POST" in answer.headers["Access-Control-Allow-Methods"]
        assert answer.headers["Vary"] == "Origin"


@pytest.mark.parametrize("path", CLOSED)
def test_pages_are_closed(app: Flask, spa: RelyingParty, path: str) -> None:
    assert allowed(preflight(app, path, SPA)) is None


def test_a_single_page_application_reads_its_answers(
    app: Flask, browser: Browser, spa: RelyingParty, user: User
) -> None:
    headers = {"Origin": SPA}
    form = {
        "grant_type": "authorization_code",
        "code": browser.approve(spa).code,
        "redirect_uri": spa.redirect_uri,
        "client_id": spa.client_id,
        "code_verifier": spa.verifier,
    }
    granted = spa.post("/oauth2/token", form, headers=headers)
    assert granted.status_code == 200
    assert allowed(granted) == SPA
    assert allowed(spa.post("/oauth2/token", form, headers=headers)) == SPA  # invalid_grant
    header = {"Authorization": f"Bearer {granted.get_json()['access_token']}", **headers}
    profile = app.test_client().get(f"{BASE}/oauth2/userinfo", headers=header)
    assert allowed(profile) == SPA
    assert profile.headers["Vary"] == "Origin"
    header["Authorization"] += "x"
    refused = app.test_client().get(f"{BASE}/oauth2/userinfo", headers=header)
    assert (refused.status_code, allowed(refused)) == (401, SPA)
    assert "WWW-Authenticate" in refused.headers["Access-Control-Expose-Headers"]
    token = {"token": granted.get_json()["refresh_token"], "client_id": spa.client_id}
    assert allowed(spa.post("/oauth2/revoke", token, headers=headers)) == SPA


def test_an_origin_goes_with_its_client(app: Flask, spa: RelyingParty) -> None:
    assert allowed(preflight(app, TOKENS[1], SPA)) == SPA
    with app.app_context():
        clients.disable(audit.SYSTEM, spa.client_id)
        db.session.commit()
    assert allowed(preflight(app, TOKENS[1], SPA)) is None
    with app.app_context():
        clients.delete(audit.SYSTEM, spa.client_id)
        db.session.commit()
    assert allowed(preflight(app, TOKENS[1], SPA)) is None


def test_an_origin_goes_with_its_redirect_uri(app: Flask, spa: RelyingParty) -> None:
    new = "https://new.example:8443"
    with app.app_context():
        uris = [f"{new}/a", f"{new}/b", "http://[::1]:9/cb"]
        clients.change(audit.SYSTEM, spa.client_id, {"redirect_uris": uris})
        db.session.commit()
    found = {one: allowed(preflight(app, TOKENS[0], one)) for one in (SPA, new, "http://[::1]")}
    assert found == {SPA: None, new: new, "http://[::1]": "http://[::1]"}


def test_a_confidential_client_has_no_origin(app: Flask, client: RelyingParty) -> None:
    origin = urls.origin(client.redirect_uri)
    assert origin
    assert allowed(preflight(app, TOKENS[0], origin)) is None


def test_other_requests_cost_no_statement(
    app: Flask,
    browser: Browser,
    spa: RelyingParty,
    user: User,
    statements: Callable[[], AbstractContextManager[Statements]],
) -> None:
    tokens = spa.exchange(browser.approve(spa).code).get_json()
    counts = []
    for headers in ({}, {"Origin": SPA}):
        header = {"Authorization": f"Bearer {tokens['access_token']}", **headers}
        with statements() as seen:
            assert app.test_client().get(TOKENS[1], headers=header).status_code == 200
        counts.append(len(seen))
    assert counts == [1, 1]
    with statements() as seen:
        assert preflight(app, TOKENS[1], SPA).status_code == 200
    assert len(seen) == 1
