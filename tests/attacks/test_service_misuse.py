"""What an attacker tries with a service's token, with its registration, and as an API."""

import json
from typing import Any

import pytest
from flask import Flask
from joserfc.util import urlsafe_b64encode
from werkzeug.test import TestResponse

from sso.extensions import db
from sso.models import User
from sso.store import clients
from tests.support.actors import BASE, ISSUER, ORIGIN, Browser, RelyingParty, claims_of, header_of
from tests.support.factories import change_api, make_client
from tests.support.proofs import DPoP
from tests.support.services import (
    API,
    OTHER_API,
    ResourceServer,
    Service,
    make_resource_server,
    make_service,
)


@pytest.fixture
def api(app: Flask) -> ResourceServer:
    return make_resource_server(app)


@pytest.fixture
def other(app: Flask) -> ResourceServer:
    return make_resource_server(app, OTHER_API)


@pytest.fixture
def service(app: Flask, api: ResourceServer) -> Service:
    return make_service(app, default_api=API)


def error_of(answer: TestResponse) -> tuple[int, str]:
    return answer.status_code, answer.get_json()["error"]


def test_a_services_token_where_a_person_is_needed(service: Service, user: User) -> None:
    """At userinfo, as a code, as a refresh token, as an identity token, in a cookie."""
    token = service.token()
    assert service.userinfo(token).status_code == 401
    assert service.userinfo(None, "POST", data={"access_token": token}).status_code == 401
    form = {"grant_type": "refresh_token", "refresh_token": token, **service.credentials()}
    assert service.post("/oauth2/token", form).status_code == 400
    form = {"grant_type": "authorization_code", "code": token, "redirect_uri": "https://a.example"}
    assert service.post("/oauth2/token", {**form, **service.credentials()}).status_code == 400
    browser = service.app.test_client()
    end = f"{BASE}/oauth2/end-session?id_token_hint={token}"
    back = "&post_logout_redirect_uri=https://attacker.example"
    assert browser.get(end + back, base_url=ORIGIN).status_code in (200, 400)
    for path in ("/account", "/admin"):
        headers = {"Authorization": f"Bearer {token}"}
        answer = browser.get(BASE + path, headers=headers, base_url=ORIGIN)
        assert answer.status_code in (302, 303, 404)


def test_a_service_signs_nobody_in(app: Flask, browser: Browser, service: Service) -> None:
    page = browser.open_authorize(
        {"response_type": "code", "client_id": service.client_id, "scope": "openid",
         "redirect_uri": "https://attacker.example/"}
    )  # fmt: skip
    assert page.is_at_server
    assert page.status == 400
    answer = service.post("/oauth2/par", {"response_type": "code", **service.credentials()})
    assert answer.status_code == 400


def test_a_token_for_one_api_shown_to_another(
    api: ResourceServer, other: ResourceServer, service: Service
) -> None:
    token = service.token()
    assert claims_of(token)["aud"] == API
    assert other.introspect(token).get_json() == {"active": False}
    changed = other.introspect(_with_claims(token, aud=OTHER_API)).get_json()
    assert changed == {"active": False}
    assert api.introspect(token).get_json()["active"] is True


def _with_claims(token: str, **claims: Any) -> str:
    """The token with other claims, and the signature that it had."""
    head, _, signature = token.split(".")
    body = json.dumps({**claims_of(token), **claims}).encode()
    return f"{head}.{urlsafe_b64encode(body).decode()}.{signature}"


def test_a_token_that_claims_to_be_a_persons(
    api: ResourceServer, service: Service, user: User
) -> None:
    """Its digest is of the whole token."""
    token = service.token()
    for claims in (
        {"sub": str(user.id)},
        {"scope": "read write admin"},
        {"client_id": "another", "sub": "another"},
        {"exp": 1 << 33},
    ):
        altered = _with_claims(token, **claims)
        assert api.introspect(altered).get_json() == {"active": False}
        assert service.introspect(altered).get_json() == {"active": False}
        assert service.userinfo(altered).status_code == 401
    unsigned = token.rpartition(".")[0] + "."
    assert api.introspect(unsigned).get_json() == {"active": False}
    assert header_of(token)["alg"] != "none"


def test_more_scope_than_registered(app: Flask, api: ResourceServer) -> None:
    few = make_service(app, f"{API}=read", default_api=API)
    for scope in ("write", "read write", "read  write", "read\twrite", "READ", "read,write", "*"):
        answer = few.ask(scope=scope)
        if answer.status_code == 200:
            assert claims_of(answer.get_json()["access_token"])["scope"] == "read"
        else:
            assert answer.get_json()["error"] in ("invalid_scope", "invalid_request")


def test_scopes_of_the_issuer_and_of_other_apis(app: Flask, service: Service) -> None:
    make_resource_server(app, OTHER_API, scopes={"admin": "Everything"})
    of_apis = (f"{OTHER_API}#admin", f"{API}#read")
    for scope in ("openid", "profile", "offline_access", "admin", *of_apis):
        assert error_of(service.ask(scope=scope)) == (400, "invalid_scope"), scope


@pytest.mark.parametrize(
    "resource",
    [
        ISSUER,
        ISSUER + "/",
        ISSUER + "/oauth2/userinfo",
        ISSUER + "/scim",
        ISSUER + "/api",
        OTHER_API,
        API + "/",
        API + "/admin",
        API + "?x",
        API + "#",
        API + "#read",
        "https://dana@api.example.com",
        "https://api.example.com.attacker.example",
        "https://api.example.com:8443",
        "https://api.example.com%2f",
        "api.example.com",
        "*",
        "urn:x",
        "javascript:alert(1)",
        "x" * 2000,
        "https://\u0430pi.example.com",
    ],
)
def test_audiences_that_it_is_not_registered_for(
    app: Flask, other: ResourceServer, service: Service, resource: str
) -> None:
    answer = service.ask(resource=resource)
    if answer.status_code == 200:  # a trailing slash of a host makes no difference
        assert resource == API + "/"
        assert claims_of(answer.get_json()["access_token"])["aud"] == API
    else:
        assert answer.get_json()["error"] in ("invalid_target", "invalid_request")


def test_a_thousand_resources(service: Service) -> None:
    form: dict[str, Any] = {"grant_type": "client_credentials", **service.credentials()}
    form["resource"] = [f"{API}/{number}" for number in range(1000)]
    assert error_of(service.post("/oauth2/token", form))[0] in (400, 413)
    form["resource"] = [API] * 1000
    assert error_of(service.post("/oauth2/token", form))[0] in (400, 413)


def test_a_public_client(app: Flask, api: ResourceServer) -> None:
    """Not even if its row says that it may: anyone can name it."""
    public = make_client(app, public=True, apis=[API], default_api=API)
    form = {"grant_type": "client_credentials", "client_id": public.client_id}
    assert public.post("/oauth2/token", form).status_code == 401
    with app.app_context():
        client = clients.find(public.client_id)
        assert client is not None
        grants = ["authorization_code", "client_credentials"]
        client.set_client_metadata({**client.client_metadata, "grant_types": grants})
        db.session.commit()
    assert error_of(public.post("/oauth2/token", form)) == (401, "invalid_client")


def test_without_authentication(service: Service) -> None:
    form = {"grant_type": "client_credentials", "client_id": service.client_id}
    assert error_of(service.post("/oauth2/token", form)) == (401, "invalid_client")
    for secret in ("", " ", "x", service.client_secret + " ", service.client_secret.upper()):
        answer = service.ask(client_secret=secret)
        assert error_of(answer) == (401, "invalid_client"), secret
    query = f"/oauth2/token?client_id={service.client_id}&client_secret={service.client_secret}"
    assert service.post(query, {"grant_type": "client_credentials"}).status_code == 400


def test_another_services_client_id(app: Flask, service: Service) -> None:
    other = make_service(app, default_api=API)
    answer = service.ask(client_id=other.client_id)
    assert error_of(answer) == (401, "invalid_client")
    form = {"grant_type": "client_credentials", "client_id": other.client_id}
    answer = service.post("/oauth2/token", form, headers=service.basic())
    assert answer.status_code in (400, 401)


def test_a_stolen_token_without_its_key(api: ResourceServer, service: Service) -> None:
    """The API learns the key, and has to ask for a proof; here no proof, no use."""
    key = DPoP()
    token = service.token(key.header())
    found = api.introspect(token).get_json()
    assert found["token_type"] == "DPoP"
    assert found["cnf"]["jkt"] == key.jkt


def test_an_api_that_asks_about_what_is_not_its_own(
    app: Flask, browser: Browser, api: ResourceServer, other: ResourceServer,
    service: Service, user: User,
) -> None:  # fmt: skip
    books = make_client(app, apis=[API])
    tokens = books.exchange(browser.approve(books, resource=API, scope="read").code).get_json()
    for token in (tokens["access_token"], tokens.get("refresh_token", "x"), service.token()):
        assert other.introspect(token).get_json() == {"active": False}
        assert other.introspect(token, token_type_hint="x").get_json() == {"active": False}
    assert other.post("/oauth2/revoke", {"token": tokens["access_token"]}).status_code == 401
    assert api.introspect(tokens["access_token"]).get_json()["active"] is True


def test_an_api_and_a_client_at_once(api: ResourceServer, service: Service) -> None:
    """Two credentials in one request are refused, whosever they are."""
    form = {"token": service.token(), "client_id": api.api_id, "client_secret": api.secret}
    answer = service.post("/oauth2/introspect", form, headers=service.basic())
    assert answer.status_code in (400, 401)
    party = RelyingParty(api.app, api.api_id, api.secret, "")
    answer = service.post("/oauth2/introspect", form, headers=party.basic())
    assert error_of(answer) == (400, "invalid_request")


def test_names_that_no_database_takes(app: Flask, api: ResourceServer, service: Service) -> None:
    for name in ("\0", "\ud800", "x" * 5000, "'; DROP TABLE apis; --", "%"):
        form = {"token": b"t", "client_secret": b"x"}
        form["client_id"] = f"api-{name}".encode("utf-8", "surrogatepass")
        answer = service.post("/oauth2/introspect", form)
        assert answer.status_code in (400, 401), name
    for token in ("\0", "a.b.c", "x" * 20_000, "..", service.token() + "\0"):
        assert api.introspect(token).status_code in (200, 400), token[:10]


def test_what_is_taken_away_counts_at_the_next_request(
    app: Flask, api: ResourceServer, service: Service
) -> None:
    token = service.token(scope="write")
    change_api(app, API, scopes={"read": "Read"})
    assert api.introspect(token).get_json() == {"active": False}
    assert error_of(service.ask(scope="write")) == (400, "invalid_scope")
    change_api(app, API, disabled=True)
    assert error_of(service.ask()) == (400, "invalid_target")
