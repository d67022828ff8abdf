"""RFC 9700 §4.7: the attacker wants a victim's browser to sign in, consent or sign out unknowingly.

It ends at the CSRF token of every form.
"""

import pytest

from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty


def test_consent_without_the_token(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.authorize(client)
    browser.sign_in()
    consent_page = browser.page
    for token in ("", "wrong"):
        page = browser.submit(decision="allow", csrf_token=token)
        assert page.is_at_server
        assert ("decision", "allow") in page.buttons
        browser.page = consent_page
    assert browser.allow().code


def test_sign_in_as_the_attacker(browser: Browser, user: User) -> None:
    answer = browser.http.post(
        f"{BASE}/sign-in",
        data={"email": user.email, "password": "correct horse battery"},
        base_url=ORIGIN,
    )
    assert answer.status_code == 400
    assert browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/sign-in")


@pytest.mark.parametrize("path", ["sign-out", "oauth2/end-session"])
def test_sign_out(browser: Browser, client: RelyingParty, user: User, path: str) -> None:
    browser.approve(client)
    for method in ("GET", "POST"):
        browser.http.open(
            f"{BASE}/{path}", method=method, data={"decision": "sign_out"}, base_url=ORIGIN
        )
    assert browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/account")
