"""Signed authorization responses: JWT Secured Authorization Response Mode (JARM)."""

from typing import Any

import pytest
from flask import Flask
from joserfc import jwt
from joserfc.jwk import KeySet

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import ISSUER, Browser, RelyingParty, header_of
from tests.support.factories import make_client
from tests.support.signing import make_fapi_client


@pytest.fixture
def bank(app: Flask) -> RelyingParty:
    return make_client(app, authorization_signed_response_alg="ES256")


def answer_of(client: RelyingParty, sent: dict[str, str]) -> dict[str, Any]:
    """What a client reads from the answer, verified as JARM §2.4 says."""
    assert list(sent) == ["response"]
    keys = KeySet.import_key_set(client.app.test_client().get("/api/auth/oauth2/jwks").get_json())
    claims = jwt.decode(sent["response"], keys, algorithms=["ES256", "PS256"]).claims
    assert (claims["iss"], claims["aud"]) == (ISSUER, client.client_id)
    return claims


def test_the_whole_flow(app: Flask, browser: Browser, user: User) -> None:
    client = make_fapi_client(app, authorization_signed_response_alg="PS256")
    page = client.approve(browser, response_mode="jwt")
    assert not page.is_at_server
    assert header_of(page.parameters["response"])["alg"] == "PS256"
    assert client.exchange(answer_of(client, page.parameters)["code"]).status_code == 200


def test_an_answer(browser: Browser, bank: RelyingParty, user: User, clock: Clock) -> None:
    sent = browser.approve(bank, response_mode="query.jwt").parameters
    claims = answer_of(bank, sent)
    assert set(claims) == {"iss", "aud", "exp", "code", "state"}
    assert claims["exp"] - clock.now().timestamp() == pytest.approx(300, abs=1)
    assert "typ" not in header_of(sent["response"])
    # Nothing but an identity token is a hint.
    page = browser.authorize(bank, id_token_hint=sent["response"])
    assert page.error == "invalid_request"
    posted = browser.authorize(bank, response_mode="form_post.jwt")
    assert posted.action == bank.redirect_uri
    assert answer_of(bank, posted.fields)["code"]
    assert browser.authorize(bank).code  # it does not have to ask


def test_errors(browser: Browser, bank: RelyingParty, user: User) -> None:
    page = browser.authorize(bank, response_mode="jwt", prompt="none")
    claims = answer_of(bank, page.parameters)
    assert (claims["error"], claims["state"]) == ("login_required", "st4te")
    assert "code" not in claims
    page = browser.authorize(bank, response_mode="jwt", prompt="nonsense")
    assert answer_of(bank, page.parameters)["error"] == "invalid_request"
    posted = browser.authorize(bank, response_mode="form_post.jwt", prompt="none")
    assert answer_of(bank, posted.fields)["error"] == "login_required"
    for mode in ("fragment.jwt", "JWT", "jwt "):
        assert browser.authorize(bank, response_mode=mode).error == "invalid_request"


def test_a_state_that_json_cannot_hold(browser: Browser, bank: RelyingParty, user: User) -> None:
    for mode in ("jwt", "form_post.jwt"):
        page = browser.open_authorize(bank.parameters(response_mode=mode, state="\udcff"))
        assert page.error == "invalid_request"


def test_only_of_clients_that_are_registered_for_it(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    page = browser.authorize(client, response_mode="jwt")
    assert (page.error, page.is_at_server) == ("invalid_request", False)
    assert "authorization_signed_response_alg" in page.parameters["error_description"]


def test_metadata(app: Flask) -> None:
    found = app.test_client().get("/api/auth/.well-known/openid-configuration").get_json()
    assert {"jwt", "query.jwt", "form_post.jwt"} < set(found["response_modes_supported"])
    assert "PS256" in found["authorization_signing_alg_values_supported"]
