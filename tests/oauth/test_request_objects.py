"""The one member of a refused request object that counts, whatever the object is."""

import base64
import json
from typing import Any

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st

from sso.oauth.response import response_mode_of
from sso.oauth.tokens import unverified_claims
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import make_client


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
