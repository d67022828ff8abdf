"""The cookie of a signed-in browser: prolonged with its session, and not signed for nothing."""

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty


def test_the_cookie_is_prolonged_with_the_session(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.approve(client)
    browser.authorize(client)
    assert "Set-Cookie" not in browser.history[-1].headers
    clock.move(minutes=2)
    browser.authorize(client)
    assert "Set-Cookie" in browser.history[-1].headers
