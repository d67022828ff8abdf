"""Cross-origin requests."""

import pytest
from flask import Flask

from tests.support.actors import BASE

OPEN = [
    f"{BASE}/.well-known/openid-configuration",
    f"/.well-known/oauth-authorization-server{BASE}",
    f"{BASE}/oauth2/jwks",
    f"{BASE}/oauth2/token",
    f"{BASE}/oauth2/userinfo",
    f"{BASE}/oauth2/revoke",
]
CLOSED = [f"{BASE}/oauth2/authorize", f"{BASE}/sign-in", f"{BASE}/oauth2/introspect"]
PREFLIGHT = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}


@pytest.mark.parametrize("path", OPEN)
def test_a_preflight_is_answered(app: Flask, path: str) -> None:
    answer = app.test_client().options(path, headers=PREFLIGHT)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("path", CLOSED)
def test_pages_are_closed(app: Flask, path: str) -> None:
    answer = app.test_client().options(path, headers=PREFLIGHT)
    assert "Access-Control-Allow-Origin" not in answer.headers
