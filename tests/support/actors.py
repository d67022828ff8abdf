"""Who acts in a test: a browser with its person, and a relying party with its backend."""

import base64
import hashlib
import json
import re
import secrets
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

BASE = "/api/auth"
ISSUER = "http://127.0.0.1:5000/api/auth"
ORIGIN = "http://127.0.0.1:5000"


# What `_Forms` looks at: parsing the rest takes most of the time. Values have no raw ">".
_TAGS = re.compile(r"<(?:form|input|button|footer)\b[^>]*>")


class _Forms(HTMLParser):
    """Finds the first form's action, its inputs and its buttons, up to the footer."""

    def __init__(self) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, Any] = {}
        self.buttons: list[tuple[str, str]] = []
        self.ended = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ended |= tag == "footer"
        if self.ended:
            return
        if tag == "form" and self.action is None:
            self.action = found.get("action") or ""
        elif found.get("type") in ("checkbox", "radio") and "checked" not in found:
            pass  # a browser sends ticked boxes only
        elif found.get("type") == "checkbox" and found.get("name") in self.fields:
            before = self.fields[found["name"] or ""]
            boxes = before if isinstance(before, list) else [before]
            self.fields[found["name"] or ""] = [*boxes, found.get("value") or ""]
        elif tag == "input" and found.get("name"):
            self.fields[found["name"] or ""] = found.get("value") or ""
        elif tag == "button" and found.get("name"):
            self.buttons.append((found["name"] or "", found.get("value") or ""))


@dataclass
class Page:
    """Where a browser has come to: a page of the server, or a client's address."""

    url: str
    status: int
    html: str = ""
    headers: Any = None

    @cached_property
    def _forms(self) -> _Forms:
        """Most pages are only passed through: parsing each would take long."""
        forms = _Forms()
        forms.feed("".join(_TAGS.findall(self.html)))
        return forms

    @cached_property
    def fields(self) -> dict[str, Any]:
        return self._forms.fields

    @cached_property
    def buttons(self) -> list[tuple[str, str]]:
        return self._forms.buttons

    @cached_property
    def action(self) -> str | None:
        return self._forms.action

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @property
    def parameters(self) -> dict[str, str]:
        """What the client's address received."""
        return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))

    @property
    def code(self) -> str:
        return self.parameters["code"]

    @property
    def error(self) -> str | None:
        return self.parameters.get("error")

    @property
    def is_at_server(self) -> bool:
        return self.url.startswith(ORIGIN)


@dataclass
class RelyingParty:
    """A registered application's backend. A public client has the secret "".

    With a verifier, each of its requests has PKCE.
    """

    app: Flask
    client_id: str
    client_secret: str
    redirect_uri: str
    verifier: str | None = None

    def parameters(self, **more: Any) -> dict[str, Any]:
        """An authorization request; `None` leaves a parameter out, a list repeats it."""
        values: dict[str, Any] = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": "openid profile email",
            "state": "st4te",
            "code_challenge": challenge_of(self.verifier) if self.verifier else None,
            "code_challenge_method": "S256" if self.verifier else None,
            **more,
        }
        return {name: value for name, value in values.items() if value is not None}

    def post(self, path: str, form: Any, **more: Any) -> TestResponse:
        """Post a form to an endpoint, without cookies."""
        backend = self.app.test_client(use_cookies=False)
        return backend.post(f"{BASE}{path}", data=form, base_url=ORIGIN, **more)

    def credentials(self) -> dict[str, str]:
        named = {"client_id": self.client_id}
        return named | ({"client_secret": self.client_secret} if self.client_secret else {})

    def basic(self, client_secret: str | None = None) -> dict[str, str]:
        pair = f"{self.client_id}:{client_secret or self.client_secret}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}

    def exchange(
        self, code: str, headers: dict[str, str] | None = None, /, **more: str | None
    ) -> TestResponse:
        """Trade a code for tokens; `None` leaves a field out."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
            **self.credentials(),
            **more,
        }
        given = {k: v for k, v in form.items() if v is not None}
        return self.post("/oauth2/token", given, headers=headers)

    def push(self, headers: dict[str, str] | None = None, /, **more: Any) -> TestResponse:
        """Push an authorization request (RFC 9126); `None` leaves a field out."""
        form = self.parameters() | self.credentials() | more
        given = {k: v for k, v in form.items() if v is not None}
        return self.post("/oauth2/par", given, headers=headers)

    def refresh(
        self, refresh_token: str, headers: dict[str, str] | None = None, /, **more: str
    ) -> TestResponse:
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return self.post("/oauth2/token", {**form, **self.credentials(), **more}, headers=headers)

    def revoke(self, token: str, **more: str) -> TestResponse:
        return self.post("/oauth2/revoke", {"token": token, **self.credentials(), **more})

    def introspect(self, token: str, **more: str) -> TestResponse:
        return self.post("/oauth2/introspect", {"token": token, **self.credentials(), **more})

    def userinfo(self, access_token: str | None, method: str = "GET", **more: Any) -> TestResponse:
        headers = {"Authorization": f"Bearer {access_token}"} if access_token else {}
        backend = self.app.test_client(use_cookies=False)
        return backend.open(
            f"{BASE}/oauth2/userinfo", method=method, headers=headers, base_url=ORIGIN, **more
        )


class Browser:
    """A browser and the person in front of it. Follows redirects as long as they stay here."""

    def __init__(self, app: Flask) -> None:
        self.http: FlaskClient = app.test_client()
        self.page = Page(ORIGIN, 0)
        self.history: list[TestResponse] = []

    def open(self, url: str, method: str = "GET", **more: Any) -> Page:
        """Go to an address and on, until there is a page or a client's address."""
        url = urljoin(self.page.url if self.page.is_at_server else ORIGIN, url)
        for _ in range(10):
            if not url.startswith(ORIGIN + "/"):
                self.page = Page(url, 0)
                return self.page
            response = self.http.open(
                url.removeprefix(ORIGIN), method=method, base_url=ORIGIN, **more
            )
            self.history.append(response)
            if response.status_code not in (301, 302, 303, 307, 308):
                return self._arrive(url, response)
            url = urljoin(url, response.headers["Location"])
            if response.status_code not in (307, 308):
                method, more = "GET", {}
        raise AssertionError(f"redirected in a loop: {url}")

    def authorize(self, client: RelyingParty, **more: Any) -> Page:
        """Be sent to the authorization endpoint by a client."""
        return self.open_authorize(client.parameters(**more))

    def open_authorize(self, query: dict[str, Any]) -> Page:
        """Be sent to the authorization endpoint with exactly these parameters."""
        return self.open(
            f"{ORIGIN}{BASE}/oauth2/authorize?"
            + urlencode(query, doseq=True, errors="surrogateescape")
        )

    def submit(self, **values: Any) -> Page:
        """Send the form of the page."""
        fields = {**self.page.fields, **values}
        return self.open(self.page.action or self.page.url, method="POST", data=fields)

    def sign_in(
        self, email: str = "dana@example.com", password: str = "correct horse battery"
    ) -> Page:
        """Fill the sign-in form; without one, open it first."""
        if "password" not in self.page.fields:
            self.open(f"{ORIGIN}{BASE}/sign-in")
        return self.submit(email=email, password=password)

    def allow(self) -> Page:
        return self.submit(decision="allow")

    def deny(self) -> Page:
        return self.submit(decision="deny")

    def approve(self, client: RelyingParty, **more: Any) -> Page:
        """The whole way: authorize, sign in and allow, as far as each is asked for."""
        page = self.authorize(client, **more)
        if "password" in page.fields:
            page = self.sign_in()
        if ("decision", "allow") in page.buttons:
            page = self.allow()
        return page

    def _arrive(self, url: str, response: TestResponse) -> Page:
        html = response.get_data(as_text=True)
        self.page = Page(url, response.status_code, html, response.headers)
        return self.page


def pkce() -> tuple[str, str]:
    """A verifier and its S256 challenge (RFC 7636 §4.2)."""
    verifier = secrets.token_urlsafe(32)
    return verifier, challenge_of(verifier)


def challenge_of(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def claims_of(jwt: str) -> dict[str, Any]:
    """The claims of a JWT, unverified: for looking at."""
    body = jwt.split(".")[1]
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return decoded


def header_of(jwt: str) -> dict[str, Any]:
    """The header of a JWT."""
    head = jwt.split(".")[0]
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    return decoded
