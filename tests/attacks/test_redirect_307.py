"""RFC 9700 §4.12: the attacker's client wants the browser to re-post the password to it.

It ends at 303: what follows is a GET, whatever was posted.
"""

from sso.models import User
from tests.support.actors import Browser, RelyingParty


def test_every_redirect_is_303(browser: Browser, client: RelyingParty, user: User) -> None:
    browser.approve(client)
    browser.authorize(client, prompt="none", scope="nonsense")
    assert {answer.status_code for answer in browser.history} == {200, 303}
