"""The attacker's page, open in the person's browser, wants to read tokens and profiles.

It ends at the origin: only those of public clients' redirect URIs are told that they may read.
"""

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sso.models import User
from tests.support.actors import BASE, Browser, RelyingParty
from tests.support.factories import make_client

SPA = "https://app.example"
PATHS = [f"{BASE}/oauth2/token", f"{BASE}/oauth2/userinfo", f"{BASE}/oauth2/revoke"]
FOREIGN = [
    "null", "*", "https://evil.example", "http://app.example", "https://app.example.evil.example",
    "https://evil-app.example", "https://evil.app.example", "https://app.exampl", "https://app.example.",
    "https://app.example:8443", "https://app.example/", "https://app.example/callback",
    "app.example", "https://APP.example", "https://app.example https://evil.example", "https://app.example,https://x",
    "https://evil@app.example", "https://app%2eexample", "https://app_example", "https://%",
    "https://books.example", "https://", "http://localhost.evil.example:5173", "http://127.0.0.1:5173",
    "https://localhost:5173", "http://localhost:99999", "com.example.app", "com.example.app:/",
    '"https://app.example', "https://app.example\\", "https://" + "a" * 8000,
]  # fmt: skip


@pytest.fixture
def spa(app: Flask) -> RelyingParty:
    redirect_uris = [f"{SPA}/callback", "http://localhost:5173/callback", "com.example.app:/cb"]
    return make_client(app, redirect_uris=redirect_uris, public=True)


def allowed(app: Flask, method: str, path: str, origin: str, **headers: str) -> str | None:
    answer = app.test_client().open(path, method=method, headers={"Origin": origin, **headers})
    assert answer.headers["Vary"] == "Origin"  # no cache gives it to another origin
    if "Access-Control-Allow-Origin" not in answer.headers:
        assert not [name for name, _ in answer.headers if name.startswith("Access-Control")]
    return answer.headers.get("Access-Control-Allow-Origin")


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_origin(app: Flask, spa: RelyingParty, path: str, origin: str) -> None:
    make_client(app)  # a confidential client at https://books.example
    preflight = {"Access-Control-Request-Method": "POST"}
    assert allowed(app, "OPTIONS", path, origin, **preflight) is None
    assert allowed(app, "POST", path, origin) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_no_text_is_an_origin(app: Flask, spa: RelyingParty, text: str) -> None:
    for origin in (text, SPA + text, text + SPA):
        if origin.strip() != SPA:
            assert allowed(app, "OPTIONS", PATHS[0], origin) is None


def test_a_cached_answer_says_for_whom_it_is(app: Flask, spa: RelyingParty) -> None:
    for path in PATHS:
        answer = app.test_client().post(path)
        assert answer.headers["Vary"] == "Origin"
        assert answer.headers["Cache-Control"] == "no-store"


def test_the_origin_of_another_public_client(
    app: Flask, browser: Browser, spa: RelyingParty, user: User
) -> None:
    make_client(app, redirect_uris=["https://other.example/cb"], public=True)
    tokens = spa.exchange(browser.approve(spa).code).get_json()
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    assert allowed(app, "GET", PATHS[1], "https://other.example", **bearer) is None
    assert allowed(app, "GET", PATHS[1], SPA, **bearer) == SPA


def test_the_token_of_a_confidential_client(
    app: Flask, browser: Browser, client: RelyingParty, spa: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    for origin in (SPA, "https://books.example"):
        assert allowed(app, "GET", PATHS[1], origin, **bearer) is None
