"""A person's browser in front of a proxy that asks this server (forward auth)."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from flask import Flask
from werkzeug.test import TestResponse

from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import make_client

WIKI = "https://wiki.example.com"
NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Accept": "text/html"}
IDENTITY = ("Remote-User", "Remote-Email", "Remote-Name", "Remote-Groups", "X-Sso-Assertion")


def make_proxied(app: Flask, **more: Any) -> str:
    """Register an application behind a proxy; return its client ID."""
    usual = {"name": "Wiki", "proxy_urls": [WIKI], "redirect_uris": [], "first_party": True}
    return make_client(app, **{**usual, **more}).client_id


@dataclass
class Proxied:
    """An application behind a proxy, and the cookies that one browser has there."""

    app: Flask
    client_id: str
    origin: str = WIKI
    cookies: dict[str, str] = field(default_factory=dict)

    def ask(
        self, uri: str = "/", headers: dict[str, str] | None = None, /, **more: Any
    ) -> TestResponse:
        """As the proxy asks, by the method `method`; keeps the cookies of the answer."""
        parts = urlsplit(self.origin)
        sent = {
            "X-Forwarded-Method": more.pop("method", "GET"),
            "X-Forwarded-Proto": parts.scheme,
            "X-Forwarded-Host": parts.netloc,
            "X-Forwarded-Uri": uri,
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
            **NAVIGATION,
            **(headers or {}),
        }
        client_id = more.pop("client_id", self.client_id)
        response = self.app.test_client(use_cookies=False).open(
            f"{BASE}/forward-auth/{client_id}{more.pop('path', '')}",
            headers={name: value for name, value in sent.items() if value},
            base_url=ORIGIN,
            **more,
        )
        for cookie in response.headers.getlist("Set-Cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
            if not value:
                del self.cookies[name]
        return response

    def callback(self, browser: Browser, sent: TestResponse) -> str:
        """Follow a redirect to the sign-in; return path and query of the way back."""
        assert sent.status_code == 303, sent.get_data(as_text=True)
        page = browser.open(sent.headers["Location"])
        if "password" in page.fields:
            page = browser.sign_in()
        if ("decision", "allow") in page.buttons:
            page = browser.allow()
        assert page.url.startswith(f"{self.origin}/.sso/callback?"), page.html
        return page.url.removeprefix(self.origin)

    def sign_in(self, browser: Browser, uri: str = "/") -> str:
        """The whole way; return where the browser is sent in the end."""
        answer = self.ask(self.callback(browser, self.ask(uri)))
        assert answer.status_code == 303, answer.get_data(as_text=True)
        return answer.headers["Location"]
