"""The cookie of a signed-in browser: prolonged with its session, and not signed for nothing."""

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import ORIGIN, Browser, RelyingParty
from tests.support.second_factors import is_signed_in


def test_the_cookie_is_prolonged_with_the_session(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.approve(client)
    browser.authorize(client)
    assert "Set-Cookie" not in browser.history[-1].headers
    clock.move(minutes=2)
    browser.authorize(client)
    assert "Set-Cookie" in browser.history[-1].headers


def test_a_page_outside_of_its_path_leaves_it_alone(browser: Browser, user: User) -> None:
    """The browser does not show its cookie there, and would be signed out by another one."""
    browser.sign_in()
    browser.http.environ_base["HTTP_ACCEPT"] = "text/html"
    page = browser.open(f"{ORIGIN}/favicon.ico")
    assert page.status == 404
    assert "Set-Cookie" not in page.headers
    assert is_signed_in(browser)
