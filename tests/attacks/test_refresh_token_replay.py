"""RFC 9700 §4.14: the attacker has stolen a refresh token.

It ends as soon as thief and client have both used it: the whole family is revoked.
"""

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty


def test_the_second_use_ends_it_for_both(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    stolen = client.exchange(browser.approve(client).code).get_json()["refresh_token"]
    winner = client.refresh(stolen).get_json()
    clock.move(minutes=10)
    winner = client.refresh(winner["refresh_token"]).get_json()
    clock.move(minutes=10)
    assert client.refresh(stolen).get_json()["error"] == "invalid_grant"
    assert client.refresh(winner["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert client.userinfo(winner["access_token"]).status_code == 401


def test_a_repeated_refresh_gives_nothing_once_its_successor_was_used(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Also within the seconds in which a client may repeat a refresh."""
    stolen = client.exchange(browser.approve(client).code).get_json()["refresh_token"]
    winner = client.refresh(stolen).get_json()["refresh_token"]
    assert client.refresh(stolen).get_json()["refresh_token"] == winner
    newest = client.refresh(winner).get_json()["refresh_token"]
    assert client.refresh(stolen).get_json()["error"] == "invalid_grant"
    assert client.refresh(newest).get_json()["error"] == "invalid_grant"


def test_a_guessed_successor_is_none(browser: Browser, client: RelyingParty, user: User) -> None:
    """The successor is derived with a key of the server's, not from the token alone."""
    from sso.crypto import secrets

    token = client.exchange(browser.approve(client).code).get_json()["refresh_token"]
    guessed = secrets.derive_secret(secrets.REFRESH_TOKEN, token, b"")
    real = client.refresh(token).get_json()["refresh_token"]
    assert guessed != real
    assert client.refresh(guessed).get_json()["error"] == "invalid_grant"
