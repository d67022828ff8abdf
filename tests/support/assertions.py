"""Identity assertions (ID-JAG): an application that gets them here, and one that presents them."""

from typing import Any
from uuid import uuid4

from flask import Flask
from werkzeug.test import TestResponse

from sso import clock
from sso.config.client_fields import AUTHORIZATION_CODE, JWT_BEARER, REFRESH_TOKEN, TOKEN_EXCHANGE
from sso.extensions import db
from sso.models import Identity, User
from sso.oauth.id_jag import ID_JAG, ID_TOKEN
from tests.support.actors import ISSUER, RelyingParty
from tests.support.factories import make_client
from tests.support.platforms import Platform

TYPE = "oauth-id-jag+jwt"
AUDIENCE, CLIENT_THERE = "https://chat.example/", "books-at-chat"
SUBJECT = "dana-at-work"


def make_asserting(app: Flask, *scopes: str, **more: Any) -> RelyingParty:
    """An application that gets assertions for another server."""
    usual = {
        "scope": "openid offline_access",
        "grant_types": [AUTHORIZATION_CODE, REFRESH_TOKEN, TOKEN_EXCHANGE],
        "id_jag_audiences": [" ".join((AUDIENCE, CLIENT_THERE, *scopes))],
    }
    return make_client(app, **usual | more)


def ask_assertion(
    client: RelyingParty,
    id_token: str,
    headers: dict[str, str] | None = None,
    /,
    **more: str | None,
) -> TestResponse:
    """Exchange an identity token for an assertion; `None` leaves a field out."""
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ID_JAG,
        "audience": AUDIENCE,
        "subject_token": id_token,
        "subject_token_type": ID_TOKEN,
        **client.credentials(),
        **more,
    }
    given = {name: value for name, value in form.items() if value is not None}
    return client.post("/oauth2/token", given, headers=headers)


def make_presenting(app: Flask, issuer: str, api: str, **more: Any) -> RelyingParty:
    """An application that presents assertions of an issuer to act at an API."""
    usual = {
        "name": "Assistant",
        "redirect_uris": [],
        "scope": "openid",
        "grant_types": [JWT_BEARER],
        "id_jag_issuers": [issuer],
        "apis": [api],
        "first_party": True,
    }
    return make_client(app, **usual | more)


def link(app: Flask, user: User, issuer: str, subject: str = SUBJECT) -> None:
    """Link an account at another server to a user."""
    with app.app_context():
        identity = Identity(user_id=user.id, provider="work", issuer=issuer, subject=subject)
        db.session.add(identity)
        db.session.commit()


def claims(client: RelyingParty, api: str, **more: Any) -> dict[str, Any]:
    """Claims of an assertion that is accepted; `None` leaves one out."""
    now = int(clock.now().timestamp())
    usual = {
        "sub": SUBJECT,
        "aud": ISSUER,
        "client_id": client.client_id,
        "jti": str(uuid4()),
        "iat": now,
        "exp": now + 300,
        "resource": api,
        "scope": "read",
    }
    return usual | more


def present(client: RelyingParty, assertion: str, **more: str | None) -> TestResponse:
    """Present an assertion; `None` leaves a field out."""
    form = {"grant_type": JWT_BEARER, "assertion": assertion, **client.credentials(), **more}
    return client.post("/oauth2/token", {k: v for k, v in form.items() if v is not None})


class Bridge:
    """A user, linked at an issuer; an API; and an application that presents assertions there."""

    def __init__(self, app: Flask, platform: Platform, user: User, api: str, **more: Any) -> None:
        self.app, self.platform, self.user, self.api = app, platform, user, api
        self.client = make_presenting(app, platform.issuer, api, **more)
        link(app, user, platform.issuer)

    def assertion(self, header: dict[str, Any] | None = None, /, **more: Any) -> str:
        signed = claims(self.client, self.api, **more)
        return self.platform.jwt(signed, **{"typ": TYPE, "kid": None, **(header or {})})

    def ask(self, **more: Any) -> TestResponse:
        return present(self.client, self.assertion(**more))
