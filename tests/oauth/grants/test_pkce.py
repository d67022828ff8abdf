"""PKCE (RFC 7636): the verifier fits, and is one (§4.1: 43 to 128 characters of its alphabet)."""

import hashlib
from base64 import urlsafe_b64encode

import pytest

from sso.models import User
from tests.support.actors import Browser, RelyingParty

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"


def challenge_of(verifier: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def exchange(browser: Browser, client: RelyingParty, challenge: str, verifier: str) -> int:
    page = browser.approve(client, code_challenge=challenge, code_challenge_method="S256")
    answer = client.exchange(page.code, code_verifier=verifier)
    if answer.status_code == 400:
        assert answer.get_json()["error"] == "invalid_grant"
    return answer.status_code


@pytest.mark.parametrize("verifier", ["v" * 43, "v" * 128, ALPHABET])
def test_it_fits(browser: Browser, client: RelyingParty, user: User, verifier: str) -> None:
    assert exchange(browser, client, challenge_of(verifier), verifier) == 200


@pytest.mark.parametrize(
    "verifier", ["v", "abc", "v" * 42, "v" * 129, "v" * 42 + "+", "v" * 42 + " ", "v" * 42 + "é"]
)
def test_it_fits_but_is_no_verifier(
    browser: Browser, client: RelyingParty, user: User, verifier: str
) -> None:
    """Three characters are guessed from their challenge, which stands in addresses and logs."""
    assert exchange(browser, client, challenge_of(verifier), verifier) == 400


def test_a_near_miss(browser: Browser, client: RelyingParty, user: User) -> None:
    verifier, challenge = "v" * 43, challenge_of("v" * 43)
    assert exchange(browser, client, challenge, "v" * 44) == 400
    assert exchange(browser, client, challenge, "v" * 42 + "V") == 400
    assert exchange(browser, client, challenge, challenge) == 400  # that is "plain"
    other = "o" * 43
    assert exchange(browser, client, challenge_of(other), verifier) == 400


@pytest.mark.parametrize(
    ("challenge", "method"),
    [
        ("c" * 42, "S256"),
        ("c" * 44, "S256"),
        ("c" * 42 + "+", "S256"),
        ("c" * 42 + "=", "S256"),
        ("c" * 43, "plain"),
        ("c" * 43, "s256"),
        ("c" * 43, None),
        (None, "S256"),
    ],
)
def test_what_is_no_challenge(
    browser: Browser, client: RelyingParty, challenge: str | None, method: str | None
) -> None:
    page = browser.authorize(client, code_challenge=challenge, code_challenge_method=method)
    assert page.error == "invalid_request"
