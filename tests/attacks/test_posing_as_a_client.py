"""The attacker knows a client_id, which is no secret, and wants to pass for the client.

With a confidential client it ends at the missing secret. A public client's id gives nothing: it
ends at PKCE, at what is bound to another client, and at endpoints that need authentication.
"""

import base64
from collections.abc import Mapping

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso.audit.events import Event
from sso.models import User
from sso.ratelimit import refusals
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty
from tests.support.events import events
from tests.support.factories import make_client

SPA = "https://app.example/cb"


@pytest.fixture
def public(app: Flask) -> RelyingParty:
    return make_client(app, redirect_uris=[SPA], public=True)


@pytest.mark.parametrize("method", ["any", "client_secret_post", "client_secret_basic"])
@pytest.mark.parametrize("path", ["/oauth2/token", "/oauth2/revoke", "/oauth2/introspect"])
def test_a_confidential_client_without_its_secret(
    app: Flask, browser: Browser, user: User, method: str, path: str
) -> None:
    client = make_client(app, auth_method=method)
    code = browser.approve(client).code
    form = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": client.redirect_uri,
        "token": "x", "client_id": client.client_id,
    }  # fmt: skip
    answers = [
        client.post(path, {**form, **more})
        for more in ({}, {"client_secret": ""}, {"client_id": "x"})
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.get_data() for answer in answers}) == 1  # nor is it known which exists
    assert answers[0].get_json() == {
        "error": "invalid_client",
        "error_description": (
            "Client authentication is missing: send client_id and client_secret, or a "
            "client_assertion."
        ),
    }
    assert client.exchange(code, client_secret=client.client_secret).status_code == (
        401 if method == "client_secret_basic" else 200
    )


def test_a_public_client_that_authenticates(
    browser: Browser, public: RelyingParty, user: User
) -> None:
    code = browser.approve(public).code
    form = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": SPA,
        "code_verifier": public.verifier,
    }  # fmt: skip
    for secret in ("x", "sha256:", " "):
        answer = public.exchange(code, client_secret=secret)
        assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
    for more in ({}, {"client_id": public.client_id}):
        answer = _by_basic(public, "x", {**form, **more})
        assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    # An empty secret is none (RFC 6749 §2.3.1), and nothing of that used the code up.
    assert _by_basic(public, "", form).status_code == 200


def _by_basic(public: RelyingParty, secret: str, form: Mapping[str, str | None]) -> TestResponse:
    pair = base64.b64encode(f"{public.client_id}:{secret}".encode()).decode()
    return public.post("/oauth2/token", form, headers={"Authorization": f"Basic {pair}"})


def test_introspection(browser: Browser, public: RelyingParty, user: User) -> None:
    tokens = public.exchange(browser.approve(public).code).get_json()
    for token in (tokens["access_token"], tokens["refresh_token"], "x"):
        answer = public.introspect(token)
        assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")


def test_what_was_issued_to_another_client(
    app: Flask, browser: Browser, public: RelyingParty, client: RelyingParty, user: User
) -> None:
    other = make_client(app, redirect_uris=[SPA], public=True)
    for owner in (client, other):
        code = browser.approve(owner).code
        stolen = public.exchange(
            code, redirect_uri=owner.redirect_uri, code_verifier=owner.verifier
        )
        assert stolen.get_json()["error"] == "invalid_grant"
        tokens = owner.exchange(code).get_json()
        assert public.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_grant"
        assert public.revoke(tokens["refresh_token"]).status_code == 200  # and does nothing
        assert public.revoke(tokens["access_token"]).status_code == 200
        assert owner.userinfo(tokens["access_token"]).status_code == 200
        assert owner.refresh(tokens["refresh_token"]).status_code == 200


@pytest.mark.slow
def test_the_audit_trail_is_not_filled(
    app: Flask, browser: Browser, public: RelyingParty, user: User
) -> None:
    """Who names a public client is no authenticated client: its refusals have a budget."""
    tokens = public.exchange(browser.approve(public).code).get_json()
    for _ in range(refusals.AN_HOUR + 10):
        assert public.refresh("x").status_code == 400
    assert len(events(app, Event.TOKENS_REFUSED)) == refusals.AN_HOUR
    for _ in range(3):
        assert public.revoke(tokens["refresh_token"]).status_code == 200
    assert len(events(app, Event.TOKEN_REVOKED)) == 1


def test_a_used_code_is_reported_once(
    app: Flask, browser: Browser, public: RelyingParty, user: User, clock: Clock
) -> None:
    code = browser.approve(public).code
    tokens = public.exchange(code).get_json()
    clock.move(seconds=10)
    for _ in range(3):
        assert public.exchange(code).get_json()["error"] == "invalid_grant"
    assert public.userinfo(tokens["access_token"]).status_code == 401
    assert len(events(app, Event.CODE_REUSED)) == 1
