"""RFC 9700 §4.4: the attacker wants a client of two servers to take one's answer for the other's.

It ends at `iss` (RFC 9207), which every answer carries, errors too.
"""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from sso.models import User
from tests.support.actors import ISSUER, Browser, RelyingParty


@pytest.mark.parametrize("more", [{}, {"scope": "nonsense"}, {"prompt": "none"}])
def test_every_answer_names_its_issuer(
    browser: Browser, client: RelyingParty, user: User, more: dict[str, str]
) -> None:
    page = browser.authorize(client, **more)
    if "password" in page.fields:
        browser.sign_in()
        page = browser.deny()
    assert page.parameters["iss"] == ISSUER


def test_the_issuer_does_not_come_from_the_host_header(
    browser: Browser, client: RelyingParty
) -> None:
    evil: dict[str, Any] = {
        "base_url": "http://evil.example",
        "headers": {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"},
    }
    answer = browser.http.get("/api/auth/.well-known/openid-configuration", **evil)
    assert "evil.example" not in answer.text
    query = client.parameters(prompt="none")
    answer = browser.http.get("/api/auth/oauth2/authorize", query_string=query, **evil)
    assert dict(parse_qsl(urlsplit(answer.headers["Location"]).query))["iss"] == ISSUER
