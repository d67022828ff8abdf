"""Signed authorization responses: JWT Secured Authorization Response Mode (JARM)."""

import base64
import json
from typing import Any

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import KeySet

from sso.models import User
from sso.oauth.response import response_mode_of
from sso.oauth.tokens import unverified_claims
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


# The one member of a refused request object that counts, whatever the object is.


def encoded(payload: Any) -> str:
    text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def request_object(payload: Any, header: str = '{"alg":"none"}', signature: str = "") -> str:
    return f"{encoded(header.encode())}.{encoded(payload)}.{signature}"


POST, QUERY = {"response_mode": "form_post"}, {"response_mode": "query"}
DELIVERED: dict[str, tuple[str, str | None, str]] = {
    "object asks for form_post": (request_object(POST), None, "form_post"),
    "it is signed": (request_object(POST, '{"alg":"RS256"}', "c2ln"), None, "form_post"),
    "object before query parameter": (request_object(POST), "query", "form_post"),
    "and the other way": (request_object(QUERY), "form_post", "query"),
    "object without it": (request_object({}), "form_post", "form_post"),
    "object without it, nor the query": (request_object({}), None, "query"),
    "an unknown mode": (request_object({"response_mode": "fragment"}), None, "query"),
    "an unknown mode leaves the query's": (
        request_object({"response_mode": "fragment"}), "form_post", "form_post"),
    "a mode that is no text": (request_object({"response_mode": ["form_post"]}), None, "query"),
    "not an object": (request_object(["form_post"]), None, "query"),
    "not JSON": (request_object(b"form_post"), None, "query"),
    "not UTF-8": (request_object(b'{"response_mode": "form_post", "a": "\xff"}'), None, "query"),
    "nested without end": (request_object(b"[" * 2500), None, "query"),
    "a number without end": (request_object(b"9" * 3000), None, "query"),
    "two parts": (request_object(POST).rpartition(".")[0], None, "query"),
    "encrypted: five parts": (request_object(POST) + ".a.b", None, "query"),
    "no JWT": ("form_post", None, "query"),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "mode", "wanted"), DELIVERED.values(), ids=DELIVERED.keys())
def test_how_the_refusal_is_delivered(
    browser: Browser, client: RelyingParty, sent: str, mode: str | None, wanted: str
) -> None:
    page = browser.authorize(client, request=sent, response_mode=mode)
    if wanted == "form_post":
        assert (page.status, page.action) == (200, client.redirect_uri)
        received = page.fields
    else:
        assert page.url.startswith(client.redirect_uri + "?")
        received = page.parameters
    assert received["error"] == "request_not_supported"
    assert received["state"] == "st4te"
    assert set(received) == {"error", "error_description", "state", "iss"}


def test_nothing_else_is_taken_from_it(browser: Browser, client: RelyingParty) -> None:
    inside = {**POST, "redirect_uri": "https://evil.example/", "state": "theirs", "scope": "x"}
    page = browser.authorize(client, request=request_object(inside))
    assert page.action == client.redirect_uri
    assert page.fields["state"] == "st4te"


def test_another_refusal_does_not_look_into_it(browser: Browser, client: RelyingParty) -> None:
    page = browser.authorize(client, response_type="token", request=request_object(POST))
    assert page.error == "unsupported_response_type"


@pytest.mark.parametrize("state", ["two\nlines", None])
def test_what_cannot_be_posted_is_redirected(
    browser: Browser, client: RelyingParty, state: str | None
) -> None:
    page = browser.authorize(client, request=request_object(POST), state=state)
    if state:
        assert page.error == "request_not_supported"
    else:
        assert page.fields["error"] == "request_not_supported"


def test_an_address_of_another_scheme_is_redirected_to(app: Flask, browser: Browser) -> None:
    client = make_client(app, redirect_uris=["com.example.app:/callback"], public=True)
    page = browser.authorize(client, request=request_object(POST))
    assert page.error == "request_not_supported"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
MEMBER = st.fixed_dictionaries({"response_mode": JSON})


@given(st.one_of(st.text(), st.binary().map(lambda b: request_object(b)), JSON.map(request_object)))
def test_no_text_is_a_surprise(text: str) -> None:
    assert response_mode_of(text) in (None, "query", "form_post")
    assert unverified_claims(text) is None or isinstance(unverified_claims(text), dict)


@given(MEMBER)
def test_only_a_known_mode_is_one(payload: dict[str, Any]) -> None:
    mode = payload["response_mode"]
    wanted = mode if mode in ("query", "form_post") else None
    assert response_mode_of(request_object(payload)) == wanted
