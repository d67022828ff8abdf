"""The attacker has a copy of the cookie of a session, and the owner ends all others.

It ends at a new identifier of the session that goes on: the copy names none any more.
"""

import pytest
from flask import Flask

from sso.models import User
from tests.support.actors import Browser
from tests.support.factories import PASSWORD, make_client
from tests.support.second_factors import ACCOUNT, is_signed_in

NEW = "another long password"


def copy_of(app: Flask, browser: Browser) -> Browser:
    """Another browser with the same cookies."""
    other = Browser(app)
    cookies = browser.http._cookies  # there is no other way
    assert cookies is not None
    for one in cookies.values():
        other.http.set_cookie(one.key, one.value, domain=one.domain, path=one.path)
    return other


@pytest.mark.parametrize(
    "form",
    [
        {"action": "end_other_sessions"},
        {"action": "change_password", "old_password": PASSWORD, "new_password": NEW},
    ],
    ids=lambda form: form["action"],
)
def test_the_copy_ends_and_the_owner_goes_on(app: Flask, user: User, form: dict[str, str]) -> None:
    client = make_client(app)
    owner = Browser(app)
    tokens = client.exchange(owner.approve(client).code).get_json()
    thief = copy_of(app, owner)
    assert is_signed_in(thief)
    owner.open(ACCOUNT)
    assert 'role="status"' in owner.submit(**form).html
    assert not is_signed_in(thief)
    assert is_signed_in(owner)
    assert client.refresh(tokens["refresh_token"]).status_code == 200


def test_a_copy_that_was_left_behind_ends_nobody(app: Flask, user: User) -> None:
    """A form that a copy has open is of no use after that."""
    owner = Browser(app)
    owner.sign_in()
    thief = copy_of(app, owner)
    thief.open(ACCOUNT)
    owner.open(ACCOUNT)
    owner.submit(action="end_other_sessions")
    thief.submit(action="end_other_sessions")
    assert not is_signed_in(thief)
    assert is_signed_in(owner)
