"""A secret stands where an id or an address belongs: no part of it comes to log or audit trail.

What is cut first, and redacted after that, is no longer recognised.
"""

import base64
import logging
from urllib.parse import quote, urlencode

import pytest
from flask import Flask

from sso.observability.logs import JsonFormatter
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.events import events

TOKEN, FORM = "/oauth2/token", {"grant_type": "authorization_code"}
LOGOUT = f"{ORIGIN}{BASE}/oauth2/end-session?"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def told(app: Flask, log: pytest.LogCaptureFixture) -> str:
    lines = [JsonFormatter().format(record) for record in log.records]
    kinds = ("client_authentication_failed", "authorization_refused", "post_logout_refused")
    return "\n".join([*lines, *map(str, events(app, *kinds, "tokens_refused"))])


@pytest.mark.parametrize("place", ["form", "header", "authorize"])
def test_in_the_client_id(
    app: Flask, client: RelyingParty, log: pytest.LogCaptureFixture, place: str
) -> None:
    both = f"{client.client_id}:{client.client_secret}"
    if place == "form":
        client.post(TOKEN, {**FORM, "client_id": both, "client_secret": "x"})
        client.post(TOKEN, {**FORM, "client_id": both})
    elif place == "header":
        pair = base64.b64encode(f"{quote(both, safe='')}:x".encode()).decode()
        client.post(TOKEN, FORM, headers={"Authorization": f"Basic {pair}"})
    else:
        query = urlencode({"client_id": both, "response_type": "code"})
        Browser(app).open(f"{ORIGIN}{BASE}/oauth2/authorize?{query}")
    text = told(app, log)
    assert client.client_id in text
    assert client.client_secret.removeprefix("sso_cs_")[:6] not in text


@pytest.mark.parametrize(
    "form", ["https://x/-?code={}", "https://x/#access={}", f"https://x/{'a/' * 235}{{}}"]
)
def test_in_the_address_after_a_logout(
    app: Flask, client: RelyingParty, log: pytest.LogCaptureFixture, form: str
) -> None:
    secret = client.client_secret
    uri = form.format(secret if "a/" in form else secret[7:])
    query = urlencode({"client_id": client.client_id, "post_logout_redirect_uri": uri})
    page = Browser(app).open(LOGOUT + query)
    assert "is not registered" in page.html
    text = told(app, log)
    assert "https://x/" in text
    assert secret[7:13] not in text
