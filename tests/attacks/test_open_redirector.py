"""RFC 9700 §4.11: the attacker wants a link to this server that ends at an address of his.

It ends at exact comparison before any redirect, at the end of a session too.
"""

import pytest

from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty

EVIL = [
    "https://evil.example/", "//evil.example/", "https://books.example.evil.example/callback",
    "https://books.example@evil.example/callback", "https://books.example/callback#@evil.example",
    "https://books.example/callback/../../evil", "javascript:alert(1)", "https://books.example",
    "https://books.example/callback%2f", "https://books.example:443/callback", "/callback",
]  # fmt: skip


@pytest.mark.parametrize("address", EVIL)
@pytest.mark.parametrize("more", [{}, {"response_type": "x"}, {"prompt": "none"}, {"scope": "x"}])
def test_authorize(
    browser: Browser, client: RelyingParty, address: str, more: dict[str, str]
) -> None:
    page = browser.authorize(client, redirect_uri=address, **more)
    assert page.is_at_server
    assert page.status == 400
    assert "Location" not in page.headers


@pytest.mark.parametrize("address", EVIL)
def test_end_session(browser: Browser, client: RelyingParty, user: User, address: str) -> None:
    hint = client.exchange(browser.approve(client).code).get_json()["id_token"]
    answer = browser.http.get(
        f"{BASE}/oauth2/end-session",
        query_string={"id_token_hint": hint, "post_logout_redirect_uri": address},
        base_url=ORIGIN,
    )
    assert "Location" not in answer.headers


@pytest.mark.parametrize("name", ["next", "return_to", "redirect", "resume"])
def test_sign_in_goes_nowhere_else(browser: Browser, user: User, name: str) -> None:
    browser.open(f"{ORIGIN}{BASE}/sign-in?{name}=https://evil.example/")
    if name == "resume":
        assert browser.page.status == 400
        return
    assert browser.sign_in().path == f"{BASE}/account"
