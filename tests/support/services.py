"""Makes APIs, and services that get tokens for themselves."""

from dataclasses import dataclass
from typing import Any

from flask import Flask
from werkzeug.test import TestResponse

from sso import audit
from sso.extensions import db
from sso.services import apis
from tests.support.actors import RelyingParty
from tests.support.factories import make_client
from tests.support.signing import KeyedParty, make_keyed_client

API, OTHER_API = "https://api.example.com", "https://other.example.com"
SCOPES = {"read": "Read your invoices", "write": "Change your invoices"}


@dataclass
class ResourceServer:
    """An API with its credentials for introspection."""

    app: Flask
    api_id: str
    identifier: str
    secret: str

    def introspect(self, token: str, **more: str) -> TestResponse:
        return self._party().introspect(token, **more)

    def post(self, path: str, form: dict[str, str], **more: Any) -> TestResponse:
        return self._party().post(path, {**form, **self._party().credentials()}, **more)

    def _party(self) -> RelyingParty:
        return RelyingParty(self.app, self.api_id, self.secret, "")


def make_resource_server(app: Flask, identifier: str = API, **more: Any) -> ResourceServer:
    """An API with two scopes and a secret for introspection; committed."""
    fields = {"identifier": identifier, "name": "Invoices", "scopes": SCOPES,
              "introspection": True, **more}  # fmt: skip
    with app.app_context():
        with audit.dry_run():
            api, secret = apis.register(audit.SYSTEM, fields)
        db.session.commit()
        return ResourceServer(app, api.api_id, api.identifier, secret)


@dataclass
class Service(RelyingParty):
    """A client that gets tokens for itself."""

    def ask(self, headers: dict[str, str] | None = None, /, **more: str | None) -> TestResponse:
        """Ask for a token; `None` leaves a field out."""
        form = {"grant_type": "client_credentials", **self.credentials(), **more}
        given = {name: value for name, value in form.items() if value is not None}
        return self.post("/oauth2/token", given, headers=headers)

    def token(self, headers: dict[str, str] | None = None, /, **more: str) -> str:
        answer = self.ask(headers, **more)
        assert answer.status_code == 200, answer.text
        return str(answer.get_json()["access_token"])


@dataclass
class KeyedService(Service, KeyedParty):
    """As `Service`, with a key instead of a secret."""


_SERVICE = {"name": "Reports", "grant_types": ["client_credentials"], "redirect_uris": []}


def make_service(app: Flask, *entries: str, **more: Any) -> Service:
    """A service that is registered for these APIs, by default for `API` alone; committed."""
    made = make_client(app, **{**_SERVICE, "apis": list(entries or (API,)), **more})
    return Service(app, made.client_id, made.client_secret, "")


def make_keyed_service(app: Flask, *entries: str, **more: Any) -> KeyedService:
    """As `make_service`, with a key."""
    fields = {**_SERVICE, "apis": list(entries or (API,)), **more}
    made = make_keyed_client(app, **fields)
    return KeyedService(app, made.client_id, "", "", None, made.key, made.alg)
