"""Signed request objects (RFC 9101), at the authorization endpoint and when pushed."""

import json
import secrets
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask
from sqlalchemy import update

from sso import clock as sso_clock
from sso.extensions import db
from sso.models import Client, User
from sso.oauth import key_sets
from sso.oauth.key_sets import KeySets, KeySetUnavailable
from sso.upstream import remote_cache
from tests.conftest import Clock
from tests.support.actors import ISSUER, Browser, Page, RelyingParty, claims_of
from tests.support.explaining import Explain
from tests.support.factories import make_api, make_client
from tests.support.signing import (
    EC,
    OTHER_EC,
    FapiParty,
    KeyedParty,
    make_fapi_client,
    make_keyed_client,
    public,
    sign,
    unsigned,
)

TYPE = "oauth-authz-req+jwt"
LEFT_OUT: Any = object()


def inside(client: RelyingParty, **more: Any) -> dict[str, Any]:
    now = int(sso_clock.now().timestamp())
    claims = {
        **client.parameters(), "iss": client.client_id, "aud": ISSUER, "iat": now, "nbf": now,
        "exp": now + 60, "jti": secrets.token_urlsafe(8), **more,
    }  # fmt: skip
    return {name: value for name, value in claims.items() if value is not LEFT_OUT}


def made(client: RelyingParty, header: dict[str, Any] | None = None, **more: Any) -> str:
    return sign(inside(client, **more), **{"typ": TYPE, **(header or {})})


@pytest.fixture
def bank(app: Flask) -> KeyedParty:
    return make_keyed_client(app, request_object_signing_alg="ES256")


@pytest.fixture
def fapi(app: Flask) -> FapiParty:
    return make_fapi_client(app, request_object_signing_alg="ES256")


def send(browser: Browser, client: RelyingParty, sent: str, **more: str) -> Page:
    return browser.open_authorize({"client_id": client.client_id, "request": sent, **more})


def test_the_whole_flow(browser: Browser, bank: KeyedParty, user: User, clock: Clock) -> None:
    """It is verified when it comes in: the person may take longer than it lives."""
    page = send(browser, bank, made(bank, state="inside", nonce="n"))
    clock.move(minutes=5)
    browser.sign_in()
    page = browser.allow()
    assert page.parameters["state"] == "inside"
    assert claims_of(bank.exchange(page.code).get_json()["id_token"])["nonce"] == "n"


def test_pushed(browser: Browser, fapi: FapiParty, user: User) -> None:
    only = dict.fromkeys(fapi.parameters())
    form = {**only, "client_id": fapi.client_id, "request": made(fapi, state="inside")}
    page = fapi.approve(browser, **form)
    assert page.parameters["state"] == "inside"
    assert fapi.exchange(page.code).status_code == 200


@pytest.mark.parametrize(
    "resource", ["https://docs.example", ["https://docs.example", "https://maps.example"]]
)
def test_it_names_resources(app: Flask, browser: Browser, user: User, resource: Any) -> None:
    for identifier in ("https://docs.example", "https://maps.example"):
        make_api(app, identifier)
    bank = make_keyed_client(
        app,
        request_object_signing_alg="ES256",
        apis=["https://docs.example", "https://maps.example"],
    )
    send(browser, bank, made(bank, resource=resource, scope="openid read"))
    browser.sign_in()
    tokens = bank.exchange(browser.allow().code).get_json()
    assert claims_of(tokens["access_token"])["aud"] == "https://docs.example"
    for wrong in ([["https://docs.example"]], [1], {"a": "b"}):
        page = send(browser, bank, made(bank, resource=wrong, scope="openid read"))
        assert "invalid_request_object" in page.html
    page = send(browser, bank, made(bank, resource=["https://other.example"], scope="openid read"))
    assert page.error == "invalid_target"


def test_what_is_outside_does_not_count(browser: Browser, bank: KeyedParty, user: User) -> None:
    outside = {"redirect_uri": bank.redirect_uri + "/x", "scope": "openid", "state": "outside",
               "nonce": "outside", "prompt": "none", "response_type": "token",
               "response_mode": "form_post"}  # fmt: skip
    send(browser, bank, made(bank, state="inside"), **outside)
    browser.sign_in()
    page = browser.allow()
    assert page.parameters["state"] == "inside"
    tokens = bank.exchange(page.code).get_json()
    assert "nonce" not in claims_of(tokens["id_token"])
    assert tokens["scope"] == "openid profile email"
    page = send(browser, bank, made(bank, state=LEFT_OUT), state="outside")
    assert page.error == "invalid_request"
    assert "state" not in page.parameters
    page = send(browser, bank, made(bank, code_challenge=LEFT_OUT, redirect_uri=LEFT_OUT),
                redirect_uri=bank.redirect_uri)  # fmt: skip
    assert page.status == 400


def test_numbers_and_objects(browser: Browser, bank: KeyedParty, user: User) -> None:
    browser.sign_in()
    page = send(browser, bank, made(bank, max_age=0, state="s"))
    assert "password" in page.fields
    browser.sign_in()
    assert browser.allow().code
    claims = {"id_token": {"email": {"essential": True}}}
    page = send(browser, bank, made(bank, claims=claims))
    assert claims_of(bank.exchange(page.code).get_json()["id_token"])["email"] == user.email


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no aud": ({"aud": LEFT_OUT}, "its aud"),
    "another aud": ({"aud": "https://other.example"}, "its aud"),
    "an aud that is no text": ({"aud": {"a": 1}}, "its aud"),
    "no iss": ({"iss": LEFT_OUT}, "client_id and iss"),
    "another iss": ({"iss": "x"}, "client_id and iss"),
    "a sub": ({"sub": "SELF"}, "it has a sub"),
    "a sub, without jti": ({"sub": "SELF", "jti": LEFT_OUT}, "it has a sub"),
    "no exp": ({"exp": LEFT_OUT}, "it has no exp"),
    "expired": ({"exp": 1}, "it has expired"),
    "exp far ahead": ({"exp": 10**11}, "more than an hour ahead"),
    "exp a text": ({"exp": "1"}, "its exp is not a number"),
    "nbf ahead": ({"nbf": 10**11}, "its nbf is in the future"),
    "nbf long ago": ({"nbf": 1}, "its nbf is more than an hour ago"),
    "request within": ({"request": "x"}, "request or request_uri within"),
    "request_uri within": ({"request_uri": "x"}, "request or request_uri within"),
    "a state that is no text": ({"state": 7}, "its state is not a text"),
    "a list": ({"scope": ["openid"]}, "its scope is not a text"),
    "no UTF-8": ({"state": "\ud800"}, "its state is not a text"),
    "max_age true": ({"max_age": True}, "its max_age is not a text"),
    "max_age in a list": ({"max_age": [600]}, "its max_age is not a text"),
    "max_age with a fraction": ({"max_age": 600.5}, "its max_age is not a text"),
    "huge": ({"x": "x" * 12_100}, "longer than"),
}


@pytest.mark.parametrize(("claims", "words"), BAD.values(), ids=BAD.keys())
def test_claims(browser: Browser, bank: KeyedParty, claims: dict[str, Any], words: str) -> None:
    own: dict[str, Any] = {k: bank.client_id if v == "SELF" else v for k, v in claims.items()}
    answer = bank.push(request=made(bank, **own))
    body = answer.get_json()
    assert (answer.status_code, body["error"]) == (400, "invalid_request_object")
    assert words in body["error_description"]
    if "x" not in claims:  # no URL is as long
        page = send(browser, bank, made(bank, **own), redirect_uri=bank.redirect_uri)
        assert page.error == "invalid_request_object"


HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "alg none": ({"alg": "none"}, "its alg is none of ES256"),
    "another alg": ({"alg": "PS256"}, "its alg is none of ES256"),
    "RS256": ({"alg": "RS256"}, "its alg is none of ES256"),
    "HS256": ({"alg": "HS256"}, "its alg is none of ES256"),
    "another kid": ({"kid": "k2"}, "not signed with"),
    "crit": ({"crit": ["exp"]}, "has crit"),
    "a token": ({"typ": "at+jwt"}, "its typ is not"),
    "no signature": ({}, "not signed with"),
}


@pytest.mark.parametrize(("header", "words"), HEADERS.values(), ids=HEADERS.keys())
def test_headers(bank: KeyedParty, header: dict[str, Any], words: str) -> None:
    sent = unsigned({"alg": "ES256", "kid": "k1", "typ": TYPE, **header}, inside(bank))
    body = bank.push(request=sent).get_json()
    assert body["error"] == "invalid_request_object"
    assert words in body["error_description"]


def test_a_request_object_of_another_client(app: Flask, bank: KeyedParty) -> None:
    """Even of one that was changed at the same instant, and is not named outside."""
    keyed = {"request_object_signing_alg": "ES256", "jwks": {"keys": [public(EC)]}}
    books = make_client(app, require_pkce=False, **keyed)
    with app.app_context():
        db.session.execute(update(Client).values(updated_at=sso_clock.now()))
        db.session.commit()
    for signer, status in ((bank, 400), (books, 201)):
        form = {"request": made(signer, redirect_uri=books.redirect_uri)}
        answer = books.post("/oauth2/par", form, headers=books.basic())
        assert answer.status_code == status, answer.text
    refused = books.post("/oauth2/par", {"request": made(bank)}, headers=books.basic()).get_json()
    assert "of another client" in refused["error_description"]


def test_types(bank: KeyedParty, fapi: FapiParty) -> None:
    for client in (bank, fapi):
        for typ in (TYPE, TYPE.upper(), "JWT", None):
            assert client.push(request=made(client, {"typ": typ})).status_code == 201
        for wrong in ("client-authentication+jwt", "dpop+jwt", "at+jwt", ["JWT"], 7):
            assert client.push(request=made(client, {"typ": wrong})).status_code == 400


def test_of_the_profile(fapi: FapiParty) -> None:
    assert fapi.push(request=made(fapi, nbf=LEFT_OUT)).status_code == 400
    now = inside(fapi)["iat"]
    assert fapi.push(request=made(fapi, nbf=now + 8)).status_code == 201
    assert fapi.push(request=made(fapi, nbf=now - 3601)).status_code == 400
    assert fapi.push(request=made(fapi, exp=now + 3700)).status_code == 400
    assert fapi.push(request=made(fapi, nbf=now - 3000, exp=now + 600)).status_code == 201
    assert fapi.push(request=made(fapi, nbf=now - 3000, exp=now + 601)).status_code == 400
    assert fapi.push(request=made(fapi, aud=[ISSUER, "https://x.example"])).status_code == 201


def test_an_unsigned_request_of_a_client_that_signs(
    browser: Browser, bank: KeyedParty, user: User
) -> None:
    for sent in (None, ""):
        assert bank.push(request=sent).get_json()["error"] == "invalid_request"
    page = browser.authorize(bank)
    assert page.error == "invalid_request"
    assert "has to sign" in page.parameters["error_description"]


def test_a_client_that_is_not_registered_for_it(
    app: Flask, browser: Browser, client: RelyingParty
) -> None:
    assert browser.authorize(client, request=made(client)).error == "request_not_supported"
    keyed = make_keyed_client(app)
    assert browser.authorize(keyed, request=made(keyed)).error == "request_not_supported"


def test_objects_of_others(app: Flask, browser: Browser, bank: KeyedParty) -> None:
    other = make_keyed_client(app, request_object_signing_alg="ES256",
                              jwks={"keys": [public(OTHER_EC)]})  # fmt: skip
    theirs = sign(inside(other), OTHER_EC, typ=TYPE)
    assert "not the one outside" in bank.push(request=theirs).get_json()["error_description"]
    page = send(browser, bank, theirs, redirect_uri=bank.redirect_uri)
    assert (page.error, page.is_at_server) == ("invalid_request_object", False)
    named = sign(inside(bank), OTHER_EC, typ=TYPE)
    assert bank.push(request=named).get_json()["error"] == "invalid_request_object"
    # An assertion is no request, and a request is no assertion.
    assert bank.push(request=bank.assertion()).get_json()["error"] == "invalid_request_object"
    form = {**bank.credentials(), "client_assertion": made(bank)}
    assert bank.post("/oauth2/introspect", {"token": "t", **form}).status_code == 401


def test_an_object_of_another_client_that_no_parameter_names(app: Flask) -> None:
    """With Basic, the body need not name the client."""
    signs: dict[str, Any] = {"request_object_signing_alg": "ES256", "name": "Signs"}
    other = make_keyed_client(app, **signs, jwks={"keys": [public(OTHER_EC)]})
    client = make_client(app, **signs, jwks={"keys": [public(EC)]})

    def push(request: str) -> dict[str, Any]:
        answer = client.post("/oauth2/par", {"request": request}, headers=client.basic())
        found: dict[str, Any] = answer.get_json()
        return found

    theirs = push(sign(inside(other), OTHER_EC, typ=TYPE))
    assert theirs["error_description"] == "The request object is of another client."
    assert push(made(client))["expires_in"] == 60


@pytest.mark.parametrize("sent", ["x", "a.b.c", "..", "e30.e30.", "é" * 9000])
def test_what_is_not_a_jwt(browser: Browser, bank: KeyedParty, sent: str) -> None:
    answer = bank.push(request=sent)
    assert answer.get_json()["error"] == "invalid_request_object"
    page = send(browser, bank, sent[:100])
    assert page.status == 400
    assert page.is_at_server


def test_doubled_and_unknown_members(bank: KeyedParty, browser: Browser) -> None:
    claims = json.dumps(inside(bank))
    doubled = sign(claims[:-1] + ', "state": "again"}', EC, typ=TYPE)
    assert bank.push(request=doubled).status_code == 400
    assert bank.push(request=made(bank, unknown=[1], client_assertion="x")).status_code == 201
    nul = made(bank, client_id="\0")
    assert bank.push(request=nul).get_json()["error"] == "invalid_request_object"
    assert send(browser, bank, nul).status == 400


def test_a_key_set_that_cannot_be_read(
    app: Flask, browser: Browser, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> tuple[()]:
        raise KeySetUnavailable("it answered 404, not 200", "a detail")

    uri = "https://b.example/k?key=secret"
    client = make_keyed_client(app, jwks_uri=uri, request_object_signing_alg="ES256",
                               auth_method="any")  # fmt: skip
    app.extensions["sso.key_sets"] = KeySets(fail)
    page = send(browser, client, made(client), redirect_uri=client.redirect_uri)
    assert page.error == "invalid_request_object"
    told = "The key set at https://b.example/k could not be read: it answered 404, not 200."
    assert parse_qs(urlsplit(page.url).query)["error_description"] == [told]
    assert f"could not be read from {uri}: it answered 404, not 200 (a detail)" in explain.newest()
    monkeypatch.setattr(remote_cache, "MAX_READING", 0)
    app.extensions["sso.key_sets"] = KeySets()
    page = send(browser, client, made(client), redirect_uri=client.redirect_uri)
    assert page.error == "temporarily_unavailable"


def test_the_bounds_of_its_begin(clock: Clock, bank: KeyedParty) -> None:
    """A clock may be 45 seconds ahead; what began long ago is told as such."""
    clock.stand_still()
    now = int(sso_clock.now().timestamp())
    assert bank.push(request=made(bank, nbf=now + 45, exp=now + 60)).status_code == 201
    ahead = bank.push(request=made(bank, nbf=now + 46, exp=now + 60))
    assert "its nbf is in the future" in ahead.get_json()["error_description"]
    past = bank.push(request=made(bank, nbf=now - 3601, exp=now + 60))
    assert "its nbf is more than an hour ago" in past.get_json()["error_description"]


def test_the_client_changes_while_it_is_verified(
    app: Flask, bank: KeyedParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys may have been replaced because one was stolen."""
    keys = key_sets.of

    def change(*arguments: Any) -> Any:
        found = keys(*arguments)
        monkeypatch.setattr(key_sets, "of", keys)
        app.test_cli_runner().invoke(args=["client", "update", bank.client_id, "--name", "New"])
        return found

    with app.app_context():
        monkeypatch.setattr(key_sets, "of", change)
    browser = Browser(app)
    page = send(browser, bank, made(bank))
    assert "password" not in page.fields
    assert "password" in send(browser, bank, made(bank)).fields


def test_an_unsigned_request_leads_to_no_unregistered_url(
    browser: Browser, bank: KeyedParty, user: User
) -> None:
    for uri in ("https://thief.example/cb", bank.redirect_uri + "/x"):
        page = browser.authorize(bank, redirect_uri=uri)
        assert (page.is_at_server, page.status) == (True, 400)
