"""How many SQL statements and commits a request takes: counts, not times."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from sso.models import User
from tests.conftest import Statements
from tests.support.actors import Browser, RelyingParty

Count = Callable[[], AbstractContextManager[Statements]]


@pytest.fixture(autouse=True)
def _warm(browser: Browser, client: RelyingParty, user: User) -> None:
    """A live session, a remembered consent, and a key ring that was read."""
    client.exchange(browser.approve(client).code)


def test_authorize_with_session_and_consent(
    browser: Browser, client: RelyingParty, statements: Count
) -> None:
    with statements() as seen:
        page = browser.authorize(client)
    assert page.code
    assert (len(seen), seen.commits) == (3, 1)


def test_code_exchange(browser: Browser, client: RelyingParty, statements: Count) -> None:
    code = browser.authorize(client).code
    with statements() as seen:
        assert client.exchange(code).status_code == 200
    assert (len(seen), seen.commits) == (3, 1)


def test_refresh(browser: Browser, client: RelyingParty, statements: Count) -> None:
    tokens = client.exchange(browser.authorize(client).code).get_json()
    with statements() as seen:
        assert client.refresh(tokens["refresh_token"]).status_code == 200
    assert (len(seen), seen.commits) == (3, 1)


def test_userinfo(browser: Browser, client: RelyingParty, statements: Count) -> None:
    tokens = client.exchange(browser.authorize(client).code).get_json()
    with statements() as seen:
        assert client.userinfo(tokens["access_token"]).status_code == 200
    assert (len(seen), seen.commits) == (1, 0)


def test_an_anonymous_request_writes_nothing(client: RelyingParty, statements: Count) -> None:
    with statements() as seen:
        page = Browser(client.app).authorize(client)
    assert page.path.endswith("/sign-in")
    assert all(one.lstrip().startswith("SELECT") for one in seen)
