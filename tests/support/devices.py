"""A device that signs somebody in (RFC 8628): what it asks for, and how it polls."""

from dataclasses import dataclass, field
from typing import Any

from flask import Flask
from werkzeug.test import TestResponse

from sso.config.client_fields import DEVICE_CODE, REFRESH_TOKEN
from sso.extensions import db
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty
from tests.support.factories import register_client

PAGE = f"{ORIGIN}{BASE}/device"


@dataclass
class Device(RelyingParty):
    """A client of the device grant, with the codes that it got last."""

    codes: dict[str, Any] = field(default_factory=dict)

    def ask(self, headers: dict[str, str] | None = None, /, **more: Any) -> TestResponse:
        """Ask for codes, and keep them; `None` leaves a field out."""
        form = {"scope": "openid profile", **self.credentials(), **more}
        sent = {name: value for name, value in form.items() if value is not None}
        headers = headers or {"User-Agent": "okhttp/4.12.0 (Television)"}
        answer = self.post("/oauth2/device_authorization", sent, headers=headers)
        self.codes = answer.get_json() if answer.status_code == 200 else {}
        return answer

    @property
    def user_code(self) -> str:
        return str(self.codes["user_code"])

    def poll(self, headers: dict[str, str] | None = None, /, **more: str | None) -> TestResponse:
        """Ask for tokens; `None` leaves a field out."""
        form = {
            "grant_type": DEVICE_CODE,
            "device_code": self.codes.get("device_code"),
            **self.credentials(),
            **more,
        }
        sent = {name: value for name, value in form.items() if value is not None}
        return self.post("/oauth2/token", sent, headers=headers)

    def error(self, **more: str | None) -> str:
        """Poll, and return the error."""
        return str(self.poll(**more).get_json()["error"])

    def approve(self, browser: Browser, **more: Any) -> TestResponse:
        """The whole way: ask, let the person allow it, and poll for the tokens."""
        assert self.ask(**more).status_code == 200
        assert enter(browser, self.user_code).status == 200
        browser.allow()
        return self.poll()


def make_device(app: Flask, *, confidential: bool = False, **more: Any) -> Device:
    """A registered device client, public if not told otherwise; committed."""
    fields: dict[str, Any] = {
        "name": "Television",
        "redirect_uris": [],
        "grant_types": [DEVICE_CODE, REFRESH_TOKEN],
    }
    if not confidential:
        fields["auth_method"] = "none"
    with app.app_context():
        client, secret = register_client(**(fields | more))
        db.session.commit()
        return Device(app, client.client_id, secret if confidential else "", "")


def enter(browser: Browser, user_code: str) -> Page:
    """Type the code, sign in if that is asked for, and come to the question."""
    browser.open(PAGE)
    page = browser.submit(user_code=user_code)
    return browser.sign_in() if "password" in page.fields else page
