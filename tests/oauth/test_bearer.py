"""Userinfo and its bearer tokens (OIDC Core §5.3, RFC 6750)."""

from typing import Any

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client, make_user


@pytest.fixture
def tokens(browser: Browser, client: RelyingParty, user: User) -> dict[str, Any]:
    found: dict[str, Any] = client.exchange(browser.approve(client).code).get_json()
    return found


def test_header_and_form_body(client: RelyingParty, tokens: dict[str, Any]) -> None:
    by_header = client.userinfo(tokens["access_token"], method="POST")
    by_body = client.post("/oauth2/userinfo", {"access_token": tokens["access_token"]})
    assert by_header.get_json() == by_body.get_json()
    assert by_header.status_code == by_body.status_code == 200
    both = client.userinfo(
        tokens["access_token"], method="POST", data={"access_token": tokens["access_token"]}
    )
    assert both.get_json()["error"] == "invalid_request"
    assert both.status_code == 400


def test_the_body_of_a_get_is_not_read(client: RelyingParty, tokens: dict[str, Any]) -> None:
    """RFC 6750 §2.2: a method that has no body must not be used to send the token in it."""
    body = {"access_token": tokens["access_token"]}
    answer = client.userinfo(None, data=body)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="sso"')
    assert client.userinfo(tokens["access_token"], data=body).status_code == 200


def test_no_token_is_a_bare_challenge(client: RelyingParty, tokens: dict[str, Any]) -> None:
    """RFC 6750 §3.1; a token in the query (§2.3) is none."""
    backend = client.app.test_client(use_cookies=False)
    for query in ({}, {"access_token": tokens["access_token"]}):
        answer = backend.get(f"{BASE}/oauth2/userinfo", query_string=query, base_url=ORIGIN)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="sso"'


@pytest.mark.parametrize("kind", ["garbage", "id_token", "refresh_token", "tampered"])
def test_what_is_no_access_token(client: RelyingParty, tokens: dict[str, Any], kind: str) -> None:
    token = tokens.get(kind, "garbage")
    if kind == "tampered":
        token = tokens["access_token"][:-4] + "AAAA"
    answer = client.userinfo(token)
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    assert answer.get_json()["error"] == "invalid_token"


def test_an_expired_token(clock: Clock, browser: Browser, client: RelyingParty, user: User) -> None:
    token = client.exchange(browser.approve(client).code).get_json()["access_token"]
    clock.move(seconds=3599)
    assert client.userinfo(token).status_code == 200
    clock.move(seconds=2)
    assert client.userinfo(token).status_code == 401


def test_a_revoked_token_ends_alone(client: RelyingParty, tokens: dict[str, Any]) -> None:
    assert client.revoke(tokens["access_token"], token_type_hint="nonsense").status_code == 200
    assert client.userinfo(tokens["access_token"]).status_code == 401
    assert client.refresh(tokens["refresh_token"]).status_code == 200


def test_insufficient_scope(app: Flask, browser: Browser) -> None:
    make_user(app, groups=["staff"])
    client = make_client(app, scope="groups")
    token = client.exchange(browser.approve(client, scope="groups").code).get_json()
    answer = client.userinfo(token["access_token"])
    assert answer.status_code == 403
    assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]


def test_all_standard_claims(app: Flask, browser: Browser) -> None:
    scope = "openid profile email address phone groups"
    claims = {
        "given_name": "Dana", "locale": "de", "address": {"locality": "Ulm"},
        "phone_number": "+49 1", "phone_number_verified": True,
    }  # fmt: skip
    make_user(app, groups=["staff"], claims=claims)
    client = make_client(app, scope=scope)
    page = browser.authorize(client, scope=scope)
    page = browser.sign_in()
    assert "Ulm" in page.html
    assert "staff" in page.html
    tokens = client.exchange(browser.allow().code).get_json()
    profile = client.userinfo(tokens["access_token"]).get_json()
    assert claims.items() <= profile.items()
    assert profile["groups"] == ["staff"]
    assert isinstance(profile["updated_at"], int)


def test_foreign_tokens_are_out_of_reach(
    app: Flask, client: RelyingParty, tokens: dict[str, Any]
) -> None:
    """RFC 7009 §2.1, RFC 7662 §4."""
    other = make_client(app, name="Other")
    for token in (tokens["access_token"], tokens["refresh_token"], "garbage"):
        assert other.introspect(token).get_json() == {"active": False}
        assert other.revoke(token).status_code == 200
    assert client.userinfo(tokens["access_token"]).status_code == 200
    found = client.introspect(tokens["access_token"], token_type_hint="refresh_token").get_json()
    assert found["active"] is True
    assert found["client_id"] == client.client_id
    assert client.introspect(tokens["refresh_token"]).get_json()["active"] is True
    assert client.introspect(tokens["id_token"]).get_json() == {"active": False}
