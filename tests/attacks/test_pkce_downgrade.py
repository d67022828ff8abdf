"""RFC 9700 §4.8.2: the attacker strips the challenge from a request and injects the code.

It ends at the token endpoint: a verifier without a challenge is an error.
"""

from sso.models import User
from tests.support.actors import Browser, RelyingParty, pkce


def test_a_verifier_without_a_challenge(browser: Browser, client: RelyingParty, user: User) -> None:
    verifier, _ = pkce()
    answer = client.exchange(browser.approve(client).code, code_verifier=verifier)
    assert answer.get_json()["error"] == "invalid_grant"


def test_a_challenge_that_is_the_verifier(browser: Browser, client: RelyingParty) -> None:
    verifier, _ = pkce()
    page = browser.authorize(client, code_challenge=verifier, code_challenge_method="plain")
    assert page.error == "invalid_request"
