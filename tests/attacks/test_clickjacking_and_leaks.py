"""RFC 9700 §4.16 clickjacking, §4.2 referrer leak, §4.12 redirect with 307.

The attacker frames a page, reads an address from a Referer, or gets a form with a password
re-posted. It ends at headers on every page, and at 303.
"""

import pytest

from sso.models import User
from tests.actors import BASE, ORIGIN, Browser, RelyingParty


@pytest.mark.parametrize("path", ["/sign-in", "/account", "/nowhere", "/oauth2/authorize"])
def test_pages_are_not_framed_and_send_no_referrer(browser: Browser, path: str) -> None:
    page = browser.open(f"{ORIGIN}{BASE}{path}")
    policy = page.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["X-Frame-Options"] == "DENY"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["Cache-Control"] == "no-store"


def test_every_redirect_is_303(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client)
    statuses = {answer.status_code for answer in browser.history}
    assert statuses == {200, 303}
    for answer in browser.history:
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
