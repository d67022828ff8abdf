"""RFC 9700 §4.16: the attacker frames a page and has the victim click "Allow" without seeing it.

It ends at `frame-ancestors` and `X-Frame-Options` on every page, error pages too.
"""

import pytest

from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty


@pytest.mark.parametrize("path", ["/sign-in", "/consent", "/nowhere", "/oauth2/authorize"])
def test_no_page_can_be_framed(browser: Browser, path: str) -> None:
    page = browser.open(f"{ORIGIN}{BASE}{path}")
    policy = page.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["X-Frame-Options"] == "DENY"


def test_no_page_is_held_by_the_window_that_opened_it(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    """Neither by the attacker's popup: pages of other origins lose hold of ours."""
    browser.approve(client)
    kinds = set()
    for path in ("/account", "/nowhere", "/oauth2/authorize", "/oauth2/end-session", "/sign-out"):
        page = browser.open(f"{ORIGIN}{BASE}{path}")
        assert page.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        kinds.add(page.status)
    assert kinds == {200, 400, 404}
    browser.authorize(client, response_mode="form_post")
    assert browser.history[-1].headers["Cross-Origin-Opener-Policy"] == "same-origin"


def test_what_is_no_page_has_no_opener_policy(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    """An application's popup keeps its opener where no page of ours is shown."""
    tokens = client.exchange(browser.approve(client).code)
    browser.authorize(client)
    redirect = browser.history[-1]
    assert redirect.status_code == 303
    api = browser.http.get(f"{BASE}/.well-known/openid-configuration", base_url=ORIGIN)
    style = browser.http.get(browser_asset(browser), base_url=ORIGIN)
    assert (api.status_code, style.status_code) == (200, 200)
    for answer in (redirect, tokens, api, style, client.refresh("wrong")):
        assert "Cross-Origin-Opener-Policy" not in answer.headers


def browser_asset(browser: Browser) -> str:
    """The address of the style sheet."""
    page = browser.open(f"{ORIGIN}{BASE}/sign-out")
    return page.html.partition('rel="stylesheet" href="')[2].partition('"')[0]
