"""The attacker has a public client's code or refresh token, from a redirect, a log or the disk.

No secret stands in the way. It ends at PKCE (RFC 9700 §4.5.3.1), and at the second use of a
refresh token (§4.14.2).
"""

import pytest
from flask import Flask
from sqlalchemy import update

from sso.extensions import db
from sso.models import AuthorizationCode, Client, User
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty, pkce
from tests.support.factories import make_client


@pytest.fixture
def public(app: Flask) -> RelyingParty:
    return make_client(app, redirect_uris=["com.example.app:/cb"], public=True)


def test_a_code_with_no_verifier_or_another_one(
    browser: Browser, public: RelyingParty, user: User
) -> None:
    code = browser.approve(public).code
    for verifier in (None, "", pkce()[0], "a" * 43, "x"):
        answer = public.exchange(code, code_verifier=verifier)
        assert answer.get_json()["error"] == "invalid_grant"
    assert public.exchange(code).status_code == 200  # the owner's


@pytest.mark.parametrize(
    "more",
    [
        {"code_challenge": None, "code_challenge_method": None},
        {"code_challenge": None},
        {"code_challenge": "", "code_challenge_method": ""},
        {"code_challenge_method": None},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": "s256"},
        {"code_challenge": "a" * 42},
    ],
    ids=str,
)
def test_a_downgraded_request(
    browser: Browser, public: RelyingParty, user: User, more: dict[str, str | None]
) -> None:
    browser.sign_in()
    page = browser.authorize(public, **more)
    assert page.url.startswith("com.example.app:/cb?")
    assert page.error == "invalid_request"


def test_a_code_without_a_challenge_is_worth_nothing(
    app: Flask, browser: Browser, public: RelyingParty, user: User
) -> None:
    """As of a client whose rows were written by hand: no verifier is none that fits."""
    code = browser.approve(public).code
    with app.app_context():
        db.session.execute(update(AuthorizationCode).values(code_challenge=None))
        db.session.commit()
    for verifier in (None, public.verifier):
        answer = public.exchange(code, code_verifier=verifier)
        assert answer.get_json()["error"] == "invalid_grant"


def test_a_challenge_is_needed_whatever_the_row_of_the_client_says(
    app: Flask, browser: Browser, public: RelyingParty, user: User
) -> None:
    with app.app_context():
        db.session.execute(update(Client).values(require_pkce=False))
        db.session.commit()
    page = browser.authorize(public, code_challenge=None, code_challenge_method=None)
    assert page.error == "invalid_request"


def test_a_code_injected_into_another_flow(
    app: Flask, browser: Browser, public: RelyingParty, user: User
) -> None:
    """The attacker's own device sends the stolen code with the verifier of its own request."""
    stolen = browser.approve(public).code
    public.verifier, _ = pkce()
    assert public.exchange(stolen).get_json()["error"] == "invalid_grant"


@pytest.mark.parametrize("seconds", [0, 5, 3600])
def test_a_refresh_token_used_twice_ends_everything(
    clock: Clock,
    browser: Browser,
    public: RelyingParty,
    user: User,
    seconds: int,
) -> None:
    """A second use, however soon, ends the grant: there is no leeway."""
    stolen = public.exchange(browser.approve(public).code).get_json()["refresh_token"]
    winner = public.refresh(stolen).get_json()
    clock.move(seconds=seconds)
    assert public.refresh(stolen).get_json()["error"] == "invalid_grant"
    assert public.refresh(winner["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert public.userinfo(winner["access_token"]).status_code == 401


def test_an_older_one_of_the_family(
    clock: Clock, browser: Browser, public: RelyingParty, user: User
) -> None:
    tokens = [public.exchange(browser.approve(public).code).get_json()]
    for _ in range(3):
        clock.move(minutes=10)
        tokens.append(public.refresh(tokens[-1]["refresh_token"]).get_json())
    assert public.refresh(tokens[0]["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert public.refresh(tokens[-1]["refresh_token"]).get_json()["error"] == "invalid_grant"
