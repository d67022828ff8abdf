"""Protected resource metadata that this server publishes for APIs (RFC 9728)."""

from flask import Flask

from sso import audit
from sso.extensions import db
from sso.services import apis
from tests.support.actors import BASE, ISSUER
from tests.support.services import make_resource_server

URL = "https://mcp.example.com/mcp"


def test_the_document_of_an_api(app: Flask) -> None:
    api = make_resource_server(app, URL)
    answer = app.test_client().get(f"{BASE}/protected-resource/{api.api_id}")
    assert answer.json == {
        "resource": URL,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["read", "write"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Invoices",
    }
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Cache-Control"] == "public, max-age=300"


def test_an_api_without_scopes_has_no_empty_list(app: Flask) -> None:
    api = make_resource_server(app, URL, scopes={})
    answer = app.test_client().get(f"{BASE}/protected-resource/{api.api_id}")
    assert answer.json
    assert "scopes_supported" not in answer.json


def test_no_document_of_what_is_disabled_or_unknown(app: Flask) -> None:
    api = make_resource_server(app, URL)
    with app.app_context():
        apis.disable(audit.SYSTEM, api.api_id)
        db.session.commit()
    for api_id in (api.api_id, "api-unknown", "api%00", "%F0%9F%99%82", "a" * 5000):
        assert app.test_client().get(f"{BASE}/protected-resource/{api_id}").status_code == 404
