"""A provisioning client that asks an application directly."""

import json
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso import audit
from sso.extensions import db
from sso.services import api_tokens
from tests.support.actors import BASE

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


def make_token(app: Flask, *scopes: str, name: str = "Entra") -> str:
    with app.app_context():
        _, secret = api_tokens.create(audit.Actor("olga"), name, scopes)
        db.session.commit()
        return secret


class Provisioner:
    """Calls `/scim/v2` with one API token."""

    def __init__(self, app: Flask, secret: str | None) -> None:
        self.client = app.test_client()
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> TestResponse:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.open(
            f"{BASE}/scim/v2{path}",
            method=method,
            data=body if isinstance(body, bytes) else json.dumps(body) if body else None,
            content_type="application/scim+json" if body else None,
            headers={**self.headers, **sent},
        )

    def get(self, path: str, **query: Any) -> Any:
        found = self.client.get(f"{BASE}/scim/v2{path}", query_string=query, headers=self.headers)
        assert found.status_code == 200, found.text
        return found.json

    def user(self, **more: Any) -> Any:
        body = {"schemas": [USER], "userName": "erin@example.com", "displayName": "Erin", **more}
        made = self("POST", "/Users", body)
        assert made.status_code == 201, made.text
        return made.json

    def group(self, name: str, *members: str) -> Any:
        body = {"schemas": [GROUP], "displayName": name}
        made = self("POST", "/Groups", {**body, "members": [{"value": one} for one in members]})
        assert made.status_code == 201, made.text
        return made.json

    def patch(self, path: str, *operations: Any, **headers: str) -> TestResponse:
        return self("PATCH", path, {"schemas": [PATCH], "Operations": operations}, **headers)


@pytest.fixture
def scim(app: Flask) -> Provisioner:
    return Provisioner(app, make_token(app, "scim:write"))
