"""Clients that register themselves (RFC 7591): public, few, and only where it is switched on."""

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from sso.extensions import db
from sso.jobs import upkeep
from sso.models import Client, User
from tests.conftest import Clock
from tests.scim.conftest import make_token
from tests.support.actors import BASE, Browser, RelyingParty, claims_of, pkce
from tests.support.factories import make_api

URL = f"{BASE}/oauth2/register"
BODY = {"client_name": "Editor", "redirect_uris": ["http://127.0.0.1/callback"]}


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_OPEN_REGISTRATION="true")


def register(app: Flask, body: Any = BODY, **more: Any) -> Any:
    return app.test_client().post(URL, json=body, **more)


def party_of(app: Flask, document: dict[str, Any]) -> RelyingParty:
    uri = "http://127.0.0.1:5123/callback"
    return RelyingParty(app, document["client_id"], "", uri, pkce()[0])


def test_a_client_registers_itself_and_gets_tokens(
    app: Flask, browser: Browser, user: User
) -> None:
    docs = make_api(app, agents=True)
    answer = register(app, {**BODY, "token_endpoint_auth_method": "client_secret_basic"})
    assert answer.status_code == 201
    document = answer.get_json()
    assert document["token_endpoint_auth_method"] == "none"
    assert "client_secret" not in document
    assert answer.headers["Cache-Control"] == "no-store"
    party = party_of(app, document)
    page = browser.approve(party, resource=docs, scope="openid read")
    tokens = party.exchange(page.code).get_json()
    assert claims_of(tokens["access_token"])["aud"] == docs
    assert ("decision", "allow") in browser.authorize(party).buttons  # asked each time


def test_it_is_in_the_metadata_only_if_it_is_on(make_app: Callable[..., Flask]) -> None:
    for setting, is_there in (("true", True), ("false", False)):
        app = make_app(SSO_OPEN_REGISTRATION=setting)
        http = app.test_client()
        found = http.get(f"{BASE}/.well-known/openid-configuration").get_json()
        assert ("registration_endpoint" in found) == is_there
        assert register(app).status_code == (201 if is_there else 401)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"redirect_uris": []}, "invalid_client_metadata"),
        ({"redirect_uris": ["http://app.example/"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://app.example/#x"]}, "invalid_redirect_uri"),
        ({"redirect_uris": "https://app.example/"}, "invalid_client_metadata"),
        ({"client_name": 7}, "invalid_client_metadata"),
        ({"client_name": "\ud800"}, "invalid_client_metadata"),
        ({"scope": {}}, "invalid_client_metadata"),
    ],
)
def test_bad_registrations(app: Flask, changes: dict[str, Any], error: str) -> None:
    answer = register(app, {**BODY, **changes})
    assert answer.status_code == 400
    assert answer.get_json()["error"] == error


def test_what_nobody_may_choose(app: Flask) -> None:
    more = {"first_party": True, "apis": ["https://docs.example"], "groups": [], "logo": "x",
            "client_id": "mine", "require_pkce": False, "grant_types": ["client_credentials"],
            "trust_issuer": "https://evil.example", "scope": "openid groups phone"}  # fmt: skip
    document = register(app, {**BODY, **more}).get_json()
    assert document["client_id"] != "mine"
    assert document["grant_types"] == ["authorization_code", "refresh_token"]
    assert document["scope"] == "openid"
    with app.app_context():
        client = db.session.scalar(select(Client))
        assert client is not None
        assert (client.first_party, client.require_pkce, client.apis) == (False, True, {})
        assert (client.registration, client.trust_issuer) == ("open", None)


def test_a_program_with_a_token_is_no_stranger(app: Flask) -> None:
    """It gets what its token allows, or an error; never silently a registration of a stranger."""
    body = {**BODY, "redirect_uris": ["https://app.example/"]}
    token = make_token(app, "clients:write")
    answer = register(app, body, headers={"Authorization": f"Bearer {token}"})
    assert answer.get_json()["client_secret"].startswith("sso_cs_")
    wrong = register(app, body, headers={"Authorization": f"Bearer {token[:-1]}"})
    assert (wrong.status_code, wrong.get_json()["error"]) == (401, "invalid_token")
    with app.app_context():
        assert [one.registration for one in db.session.scalars(select(Client))] == [None]


def test_a_token_in_the_url_is_refused(app: Flask) -> None:
    """RFC 6750 §2.3: URLs are in logs. Nor does it count as no token, and so as a stranger's."""
    token = make_token(app, "clients:write")
    for headers in ({}, {"Authorization": f"Bearer {token}"}):
        # The last one is an access token of a service.
        for query in (f"access_token={token}", f"x={token}", "access_token=e30.e30.c2ln"):
            answer = app.test_client().post(f"{URL}?{query}", json=BODY, headers=headers)
            assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")
    with app.app_context():
        assert db.session.scalars(select(Client)).all() == []


def test_few_for_each_network(app: Flask) -> None:
    assert [register(app).status_code for _ in range(21)] == [201] * 20 + [429]
    elsewhere = register(app, environ_overrides={"REMOTE_ADDR": "192.0.2.77"})
    assert elsewhere.status_code == 201


def test_without_use_it_is_gone_after_thirty_days(
    app: Flask, browser: Browser, user: User, clock: Clock
) -> None:
    unused, used = register(app).get_json(), register(app).get_json()
    clock.move(days=20)
    party = party_of(app, used)
    page = browser.approve(party, scope="openid offline_access")
    assert party.exchange(page.code).status_code == 200
    clock.move(days=9, hours=23)
    assert purged(app) == {unused["client_id"], used["client_id"]}
    clock.move(hours=2)
    assert purged(app) == {used["client_id"]}


def purged(app: Flask) -> set[str]:
    with app.app_context():
        upkeep.purge()
        return set(db.session.scalars(select(Client.client_id)))
