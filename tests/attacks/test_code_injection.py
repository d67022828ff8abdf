"""RFC 9700 §4.5: the attacker has a victim's code and wants the client to redeem it for him.

It ends at PKCE: the client sends the verifier of the attacker's own request.
"""

from sso.models import User
from tests.support.actors import Browser, RelyingParty, pkce


def test_another_requests_verifier_does_not_fit(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    _, victims_challenge = pkce()
    attackers_verifier, _ = pkce()
    page = browser.approve(client, code_challenge=victims_challenge, code_challenge_method="S256")
    answer = client.exchange(page.code, code_verifier=attackers_verifier)
    assert answer.get_json()["error"] == "invalid_grant"
