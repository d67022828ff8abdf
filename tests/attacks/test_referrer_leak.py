"""RFC 9700 §4.2: the attacker reads a code or a request from a Referer header or a cache.

It ends at `no-referrer` and `no-store` on every page and every redirect.
"""

from sso.models import User
from tests.support.actors import Browser, RelyingParty


def test_nothing_on_the_way_leaks(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client)
    assert len(browser.history) > 5
    for answer in browser.history:
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"


def test_pages_load_nothing_from_elsewhere(browser: Browser, client: RelyingParty) -> None:
    page = browser.authorize(client)
    assert "//" not in page.html.replace("http://www.w3.org/", "")
