"""RFC 9700 §4.9, §4.10: the attacker has one token and wants it taken for another, or for longer.

It ends at `typ`, `aud`, the row behind each access token, and its grant.
"""

import pytest

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, claims_of


def test_an_identity_token_opens_nothing(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    assert client.userinfo(tokens["id_token"]).status_code == 401
    assert claims_of(tokens["access_token"])["aud"] != client.client_id


def test_an_access_token_is_no_hint(browser: Browser, client: RelyingParty, user: User) -> None:
    token = client.exchange(browser.approve(client).code).get_json()["access_token"]
    assert browser.authorize(client, id_token_hint=token).error == "invalid_request"
    answer = browser.http.get(
        f"{BASE}/oauth2/end-session", query_string={"id_token_hint": token}, base_url=ORIGIN
    )
    assert answer.status_code == 400


@pytest.mark.parametrize("how", ["expiry", "sign-out", "revocation"])
def test_it_ends(
    clock: Clock, browser: Browser, client: RelyingParty, user: User, how: str
) -> None:
    token = client.exchange(browser.approve(client).code).get_json()["access_token"]
    assert client.userinfo(token).status_code == 200
    if how == "expiry":
        clock.move(seconds=3601)
    elif how == "sign-out":
        browser.open("/api/auth/sign-out")
        browser.submit(decision="sign_out")
    else:
        client.revoke(token)
    assert client.userinfo(token).status_code == 401
    assert client.introspect(token).get_json() == {"active": False}
