"""A code that nearly works: expired by a second, of a grant that ended, of another client."""

from typing import Any

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client

SCOPE = "openid email offline_access"


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, scope=SCOPE)


def error(answer: Any) -> str | None:
    found: str | None = answer.get_json().get("error")
    return found


def sign_out(browser: Browser) -> None:
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")


@pytest.mark.parametrize(("seconds", "wanted"), [(59, None), (61, "invalid_grant")])
def test_its_lifetime(
    clock: Clock, browser: Browser, client: RelyingParty, user: User,
    seconds: int, wanted: str | None,
) -> None:  # fmt: skip
    code = browser.approve(client, scope="openid").code
    clock.move(seconds=seconds)
    assert error(client.exchange(code)) == wanted


@pytest.mark.parametrize("scope", ["openid email", SCOPE])
def test_the_person_signs_out_before_it_is_redeemed(
    browser: Browser, client: RelyingParty, user: User, scope: str
) -> None:
    code = browser.approve(client, scope=scope).code
    sign_out(browser)
    assert error(client.exchange(code)) == (None if scope == SCOPE else "invalid_grant")


def test_the_consent_is_withdrawn_before_it_is_redeemed(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    code = browser.approve(client, scope=SCOPE).code
    browser.open(f"{ORIGIN}{BASE}/account")
    browser.submit(action="withdraw", client=client.client_id)
    assert error(client.exchange(code)) == "invalid_grant"


@pytest.mark.parametrize(("seconds", "ends"), [(0.9, False), (1.1, True)])
def test_when_it_comes_again(
    clock: Clock, browser: Browser, client: RelyingParty, user: User, seconds: float, ends: bool
) -> None:
    """Within a second it is a double click, after that a theft; one grant ends, and no other."""
    other = client.exchange(browser.approve(client, scope=SCOPE).code).get_json()
    code = browser.approve(client, scope=SCOPE).code
    tokens = client.exchange(code).get_json()
    clock.move(seconds=seconds)
    assert error(client.exchange(code)) == "invalid_grant"
    assert (client.userinfo(tokens["access_token"]).status_code == 401) is ends
    assert (error(client.refresh(tokens["refresh_token"])) is not None) is ends
    assert client.userinfo(other["access_token"]).status_code == 200


def test_one_that_was_never_redeemed_ends_nothing(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Expired is not used."""
    tokens = client.exchange(browser.approve(client, scope=SCOPE).code).get_json()
    code = browser.approve(client, scope=SCOPE).code
    clock.move(minutes=2)
    for _ in range(2):
        assert error(client.exchange(code)) == "invalid_grant"
    assert client.userinfo(tokens["access_token"]).status_code == 200


def test_a_wrong_verifier_or_address_ends_nothing(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    code = browser.approve(client, scope=SCOPE).code
    clock.move(seconds=2)
    client.exchange(code, redirect_uri="https://books.example/other")
    client.exchange(code, code_verifier="v" * 43)
    client.exchange(code, client_secret="wrong")
    assert error(client.exchange(code)) is None


@pytest.mark.parametrize(("seconds", "ends"), [(9.9, False), (10.1, True)])
def test_when_a_refresh_token_comes_again(
    clock: Clock, browser: Browser, client: RelyingParty, user: User, seconds: float, ends: bool
) -> None:
    tokens = client.exchange(browser.approve(client, scope=SCOPE).code).get_json()
    other = client.exchange(browser.approve(client, scope=SCOPE).code).get_json()
    fresh = client.refresh(tokens["refresh_token"]).get_json()
    clock.move(seconds=seconds)
    assert (error(client.refresh(tokens["refresh_token"])) is not None) is ends
    assert (client.userinfo(fresh["access_token"]).status_code == 401) is ends
    assert client.userinfo(other["access_token"]).status_code == 200


def test_within_the_leeway_a_grant_that_ended_gives_nothing(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """A retry is no way back to what was revoked in between."""
    tokens = client.exchange(browser.approve(client, scope=SCOPE).code).get_json()
    fresh = client.refresh(tokens["refresh_token"]).get_json()
    client.revoke(fresh["refresh_token"])
    clock.move(seconds=3)
    for token in (tokens, fresh):
        assert error(client.refresh(token["refresh_token"])) == "invalid_grant"


@pytest.mark.parametrize("kind", ["code", "refresh_token"])
def test_another_client_within_the_leeway(
    app: Flask, clock: Clock, browser: Browser, client: RelyingParty, user: User, kind: str
) -> None:
    other = make_client(app, name="Other", scope=SCOPE)
    code = browser.approve(client, scope=SCOPE).code
    tokens = client.exchange(code).get_json()
    fresh = client.refresh(tokens["refresh_token"]).get_json()
    for _ in range(2):
        answer = other.exchange(code) if kind == "code" else other.refresh(tokens["refresh_token"])
        assert error(answer) == "invalid_grant"
        clock.move(seconds=30)
    assert client.userinfo(fresh["access_token"]).status_code == 200
