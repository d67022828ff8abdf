"""Why services and APIs are refused, and what to do about it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from sso.process import addresses
from tests.support import platforms
from tests.support.actors import ISSUER
from tests.support.explaining import Explain
from tests.support.factories import change_api
from tests.support.platforms import Platform, of_kubernetes
from tests.support.services import (
    API,
    OTHER_API,
    ResourceServer,
    Service,
    make_resource_server,
    make_service,
)
from tests.support.signing import ASSERTION_TYPE


@pytest.fixture
def explain(app: Flask) -> Explain:
    return Explain(app)


@pytest.fixture
def api(app: Flask) -> ResourceServer:
    return make_resource_server(app)


@pytest.fixture
def service(app: Flask, api: ResourceServer) -> Service:
    return make_service(app)


def test_without_an_api(app: Flask, explain: Explain, service: Service) -> None:
    text = explain(service.ask())
    assert "names no API" in text
    assert f"client update {service.client_id} --default-api {API}" in text
    text = explain(make_service(app, apis=[]).ask())
    assert "registered for no API" in text


def test_without_a_scope(explain: Explain, service: Service) -> None:
    text = explain(service.ask(resource=API, scope="delete purge"))
    assert f"asks for delete purge at {API}" in text
    assert f"--add-api {API}=delete,purge" in text


def test_the_scopes_that_a_service_has_are_kept(
    app: Flask, explain: Explain, api: ResourceServer
) -> None:
    text = explain(make_service(app, f"{API}=read").ask(resource=API, scope="write"))
    assert f"--add-api {API}=read,write" in text


def test_at_userinfo(explain: Explain, service: Service) -> None:
    text = explain(service.userinfo(service.token(resource=API)))
    assert "issued to a service" in text


def test_credentials_of_an_api(app: Flask, explain: Explain, api: ResourceServer) -> None:
    assert "only good for introspection" in explain(api.post("/oauth2/revoke", {"token": "x"}))
    right, api.secret = api.secret, "wrong"
    text = explain(api.introspect("t"))
    assert "The secret of the API is wrong" in text
    assert f"api rotate-secret {api.api_id}" in text
    api.secret = right
    change_api(app, API, disabled=True)
    assert f"api enable {api.api_id}" in explain(api.introspect("t"))


def test_a_token_for_another_api(app: Flask, explain: Explain, service: Service) -> None:
    other = make_resource_server(app, OTHER_API)
    text = explain(other.introspect(service.token(resource=API)))
    assert f"not for the API {OTHER_API}" in text


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    monkeypatch.setattr(addresses, "forbidden", lambda *_: None)
    monkeypatch.setenv("SSL_CERT_FILE", str(platforms.certificate(tmp_path)))
    with platforms.serving(tmp_path) as platform:
        yield platform


def test_a_jwt_that_is_not_trusted(app: Flask, explain: Explain, platform: Platform) -> None:
    make_resource_server(app)
    pattern = "system:serviceaccount:reports:*"
    service = make_service(
        app, default_api=API, trust_issuer=platform.issuer, trust_subject=pattern
    )

    def why(jwt: str) -> str:
        return explain(service.ask(client_assertion_type=ASSERTION_TYPE, client_assertion=jwt))

    text = why(platform.jwt(of_kubernetes(iss="https://other.example")))
    assert "https://other.example" in text
    assert "client update" not in text
    assert platform.issuer in text
    text = why(platform.jwt(of_kubernetes(sub="system:serviceaccount:billing:x")))
    assert "system:serviceaccount:billing:x" in text
    assert "client update" not in text
    assert pattern in text
    text = why(platform.jwt(of_kubernetes(aud="https://other.example")))
    assert "for this audience alone" in text
    assert ISSUER in text
    text = why(platform.jwt(of_kubernetes(), kid="k2"))
    assert "Compare the kid k2 with the key set" in text
    jwt = platform.jwt(of_kubernetes())
    service.ask(client_assertion_type=ASSERTION_TYPE, client_assertion=jwt)
    assert "get a new JWT for each token" in why(jwt)


def test_a_platform_that_cannot_be_read(app: Flask, explain: Explain, platform: Platform) -> None:
    make_resource_server(app)
    platform.metadata["issuer"] = "https://other.example"
    service = make_service(
        app, default_api=API, trust_issuer=platform.issuer, trust_subject="system:*"
    )
    jwt = platform.jwt(of_kubernetes())
    answer = service.ask(client_assertion_type=ASSERTION_TYPE, client_assertion=jwt)
    text = explain(answer)
    assert f"could not be read from {platform.issuer}: its metadata names another issuer" in text
    assert "--jwks FILE" in text


def test_at_an_api_of_this_server(app: Flask, explain: Explain) -> None:
    service = make_service(app, f"{ISSUER}/api=clients:read", default_api=f"{ISSUER}/api")
    answer = app.test_client(use_cookies=False).post(
        "/api/auth/oauth2/register",
        json={},
        headers={"Authorization": f"Bearer {service.token()}"},
        base_url="http://127.0.0.1:5000",
    )
    assert answer.status_code == 403
    assert f"client show {service.client_id}" in explain(answer)
