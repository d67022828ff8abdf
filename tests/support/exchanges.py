"""An application with a user's token for one API, and the backends behind it that exchange it."""

from typing import Any

from flask import Flask
from werkzeug.test import TestResponse

from sso.config.client_fields import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    REFRESH_TOKEN,
    TOKEN_EXCHANGE,
)
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import make_api, make_client

DOCS, MAPS, MAIL = "https://docs.example", "https://maps.example/v1", "https://mail.example"
STORE = "https://store.example"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
SCOPE = "openid profile email offline_access"


def make_backend(
    app: Flask, acts_as: str, *apis: str, service: bool = False, **more: Any
) -> RelyingParty:
    """A backend that is one API, and calls other ones on behalf of its users."""
    own = [CLIENT_CREDENTIALS] if service else []
    return make_client(
        app,
        name=f"Backend of {acts_as}",
        redirect_uris=["https://backend.example/callback"],
        grant_types=[AUTHORIZATION_CODE, REFRESH_TOKEN, TOKEN_EXCHANGE, *own],
        exchange_from=[acts_as],
        apis=list(apis),
        **more,
    )


def exchange(
    client: RelyingParty, subject: str, headers: dict[str, str] | None = None, /, **more: Any
) -> TestResponse:
    """Exchange an access token; `None` leaves a field out."""
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "subject_token": subject,
        "subject_token_type": ACCESS_TOKEN,
        **client.credentials(),
        **more,
    }
    given = {name: value for name, value in form.items() if value is not None}
    return client.post("/oauth2/token", given, headers=headers)


class Chain:
    """APIs that call each other: documents call maps, maps call mail, mail calls the store.

    `tokens` are those of the application, for the documents.
    """

    def __init__(self, app: Flask, browser: Browser, **more: Any) -> None:
        self.app, self.browser = app, browser
        make_api(app, DOCS)
        make_api(app, MAPS, name="Maps", scopes={"read": "See maps", "draw": "Draw maps"})
        make_api(app, MAIL, name="Mail", scopes={"send": "Send mail"})
        make_api(app, STORE, name="Store", scopes={"buy": "Buy"})
        self.books = make_client(app, scope=SCOPE, apis=[DOCS, MAPS], **more)
        self.docs = make_backend(app, DOCS, MAPS)
        self.maps = make_backend(app, MAPS, MAIL)
        self.mail = make_backend(app, MAIL, STORE)
        self.store = make_backend(app, STORE, DOCS)
        self.tokens = self.approve()

    def approve(self, headers: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
        """Let the user approve; return the tokens."""
        asked = {"resource": DOCS, "scope": "openid read offline_access", **more}
        answer = self.books.exchange(self.browser.approve(self.books, **asked).code, headers)
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.get_json()
        return tokens

    @property
    def subject(self) -> str:
        return str(self.tokens["access_token"])

    def exchanged(self, **more: Any) -> str:
        """The token for maps that the documents get."""
        answer = exchange(self.docs, self.subject, resource=MAPS, **more)
        assert answer.status_code == 200, answer.text
        return str(answer.get_json()["access_token"])
