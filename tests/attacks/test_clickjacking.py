"""RFC 9700 §4.16: the attacker frames a page and has the victim click "Allow" without seeing it.

It ends at `frame-ancestors` and `X-Frame-Options` on every page, error pages too.
"""

import pytest

from tests.actors import BASE, ORIGIN, Browser


@pytest.mark.parametrize("path", ["/sign-in", "/consent", "/nowhere", "/oauth2/authorize"])
def test_no_page_can_be_framed(browser: Browser, path: str) -> None:
    page = browser.open(f"{ORIGIN}{BASE}{path}")
    policy = page.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["X-Frame-Options"] == "DENY"
