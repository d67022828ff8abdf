"""Issuers of earlier servers, and an unchanged application that knows one of them alone."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import requests
from authlib.integrations.requests_client import OAuth2Session
from flask import Flask
from joserfc import jwt
from joserfc.jwk import KeySet
from requests.adapters import BaseAdapter

from sso.extensions import db
from sso.store import clients
from tests.support.actors import ORIGIN, Browser, Page, RelyingParty

KEYCLOAK = "https://login.example.com/realms/main"
STAFF = "https://login.example.com/realms/staff"
WIKI = "https://authentik.example/application/o/wiki/"
GIT = "https://authentik.example/application/o/git/"
AUTHELIA = "https://authelia.example"
POCKET_ID = "https://pocket.example"
TOGETHER = (
    f"{KEYCLOAK}=keycloak {STAFF}=keycloak {WIKI}=authentik {GIT}=authentik {AUTHELIA}=authelia"
)
ALONE = f"{POCKET_ID}=pocket-id"  # its metadata is where that of Authelia is
ISSUERS = {KEYCLOAK: TOGETHER, WIKI: TOGETHER, AUTHELIA: TOGETHER, POCKET_ID: ALONE}


def give_issuer(app: Flask, client: RelyingParty, issuer: str | None) -> None:
    """Move a client to an issuer, as `migrate` does; `None` is this server's own."""
    with app.app_context():
        row = clients.find(client.client_id)
        assert row
        row.set_client_metadata({**row.client_metadata, "issuer": issuer})
        db.session.commit()


class _InProcess(BaseAdapter):
    """Answers the requests of `requests` by an application, whatever host they are for."""

    def __init__(self, app: Flask) -> None:
        super().__init__()
        self.app = app

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        parts = urlsplit(request.url or "")
        answer = self.app.test_client(use_cookies=False).open(
            f"{parts.path}?{parts.query}",
            method=request.method,
            base_url=f"{parts.scheme}://{parts.netloc}",
            headers=dict(request.headers),
            data=request.body,
        )
        response = requests.Response()
        response.status_code, response.url = answer.status_code, request.url or ""
        response.headers.update(dict(answer.headers))
        response._content = answer.get_data()
        response.request = request
        return response

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Application:
    """An application with Authlib's client that was set to an issuer, and to nothing else."""

    app: Flask
    client: RelyingParty
    issuer: str
    session: Any = field(init=False)

    def __post_init__(self) -> None:
        self.session = OAuth2Session(
            self.client.client_id,
            self.client.client_secret,
            scope="openid profile email",
            redirect_uri=self.client.redirect_uri,
            code_challenge_method="S256",
        )
        self.session.mount("https://", _InProcess(self.app))
        self.session.mount("http://", _InProcess(self.app))

    @property
    def metadata(self) -> dict[str, Any]:
        """OIDC Discovery §4.3: the issuer in it has to be the one that it was asked about."""
        url = f"{self.issuer.removesuffix('/')}/.well-known/openid-configuration"
        document: dict[str, Any] = self.session.get(url, withhold_token=True).json()
        assert document["issuer"] == self.issuer
        return document

    def sign_in(self, browser: Browser) -> dict[str, Any]:
        """Sign the person in; return the verified claims of the identity token."""
        verifier = "v" * 43
        url, state = self.session.create_authorization_url(
            self.metadata["authorization_endpoint"], code_verifier=verifier, nonce="n0nce"
        )
        page = visit(browser, url)
        if "password" in page.fields:
            page = browser.sign_in()
        if ("decision", "allow") in page.buttons:
            page = browser.allow()
        assert page.parameters.get("iss") == self.issuer, page  # RFC 9207 §2.4
        assert page.parameters["state"] == state
        self.session.fetch_token(
            self.metadata["token_endpoint"],
            authorization_response=page.url,
            code_verifier=verifier,
        )
        assert self.identity()["nonce"] == "n0nce"
        return self.identity()

    def refresh(self) -> dict[str, Any]:
        """Refresh the tokens; return the verified claims of the new identity token."""
        self.session.refresh_token(self.metadata["token_endpoint"])
        return self.identity()

    def identity(self) -> dict[str, Any]:
        """Return the claims of the identity token, verified (OIDC Core §3.1.3.7)."""
        keys = KeySet.import_key_set(
            self.session.get(self.metadata["jwks_uri"], withhold_token=True).json()
        )
        claims = jwt.decode(self.session.token["id_token"], keys, algorithms=["RS256"]).claims
        assert claims["iss"] == self.issuer
        assert claims["aud"] == self.client.client_id
        return claims

    def userinfo(self) -> requests.Response:
        answer: requests.Response = self.session.get(self.metadata["userinfo_endpoint"])
        return answer

    def sign_out_url(self, **more: str) -> str:
        query = {"id_token_hint": self.session.token["id_token"], **more}
        return f"{self.metadata['end_session_endpoint']}?{urlencode(query)}"


def visit(browser: Browser, url: str) -> Page:
    """Go to an old address, which may be on another host, and on to where it leads."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    if origin == ORIGIN:
        return browser.open(url)
    answer = browser.http.get(url.removeprefix(origin), base_url=origin)
    browser.history.append(answer)
    if answer.status_code != 303:
        return Page(url, answer.status_code, answer.get_data(as_text=True), answer.headers)
    return browser.open(answer.headers["Location"])
