"""The modules of the plan "FAPI 2.0 Security Profile Final" about metadata, requests in general and
client authentication, and those of "FAPI 2.0 Message Signing Final" about signed requests.

A test a module, named after it. The clients are registered with `--profile fapi2`.
"""

from typing import Any

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.oauth.test_signed_requests import LEFT_OUT, made
from tests.support.actors import BASE, ISSUER, Browser, Page, claims_of
from tests.support.factories import make_user
from tests.support.signing import OTHER_EC, FapiParty, make_fapi_client, public, sign, unsigned

FAPI = {"PS256", "ES256", "EdDSA"}


@pytest.fixture
def client(app: Flask) -> FapiParty:
    return make_fapi_client(app)


@pytest.fixture
def other(app: Flask) -> FapiParty:
    made = make_fapi_client(app, jwks={"keys": [public(OTHER_EC)]})
    made.key = OTHER_EC
    return made


@pytest.fixture
def signer(app: Flask) -> FapiParty:
    return make_fapi_client(app, request_object_signing_alg="ES256")


def refused(answer: Any, *errors: str) -> bool:
    assert answer.mimetype == "application/json"
    return answer.status_code in (400, 401) and answer.get_json()["error"] in errors


def flow(browser: Browser, client: FapiParty, **more: str | None) -> tuple[Page, dict[str, Any]]:
    page = client.approve(browser, **more)
    answer = client.exchange(page.code)
    assert answer.status_code == 200
    return page, answer.get_json()


# ---- the plan Security Profile ----


def test_discovery_end_point_verification(app: Flask) -> None:
    answer = app.test_client().get(f"{BASE}/.well-known/openid-configuration")
    found = answer.get_json()
    assert answer.mimetype == "application/json"
    assert found["issuer"] == ISSUER
    for name in ("dpop_signing", "id_token_signing", "token_endpoint_auth_signing"):
        assert FAPI & set(found[f"{name}_alg_values_supported"]), name
    assert "private_key_jwt" in found["token_endpoint_auth_methods_supported"]
    assert "S256" in found["code_challenge_methods_supported"]
    assert found["jwks_uri"]
    assert found["authorization_response_iss_parameter_supported"] is True
    assert found["pushed_authorization_request_endpoint"]


def test_ensure_authorization_request_without_state_success(
    browser: Browser, client: FapiParty, user: User
) -> None:
    page, _ = flow(browser, client, state=None)
    assert page.parameters.keys() == {"code", "iss"}


def test_ensure_authorization_request_without_nonce_success(
    browser: Browser, client: FapiParty, user: User
) -> None:
    _, tokens = flow(browser, client)
    assert "nonce" not in claims_of(tokens["id_token"])


@pytest.mark.parametrize("length", [64])
def test_ensure_authorization_request_with_64_char_nonce_success(
    browser: Browser, client: FapiParty, user: User, length: int
) -> None:
    _, tokens = flow(browser, client, nonce="n" * length)
    assert claims_of(tokens["id_token"])["nonce"] == "n" * length


def test_ensure_other_scope_order_succeeds(browser: Browser, client: FapiParty, user: User) -> None:
    _, tokens = flow(browser, client, scope="email profile openid")
    assert set(tokens["scope"].split()) == {"openid", "profile", "email"}


def test_test_claims_parameter_identity_claims(
    app: Flask, browser: Browser, client: FapiParty
) -> None:
    make_user(app, claims={"given_name": "Dana"})
    claims = '{"id_token": {"given_name": {"essential": true}, "email": null}}'
    _, tokens = flow(browser, client, claims=claims)
    found = claims_of(tokens["id_token"])
    assert (found["given_name"], found["email"]) == ("Dana", "dana@example.com")


@pytest.mark.parametrize("name", ["nonce", "state"])
def test_ensure_different_nonce_and_state_inside_and_outside(
    browser: Browser, client: FapiParty, user: User, name: str
) -> None:
    uri = client.push(**{name: "inside"}).get_json()["request_uri"]
    browser.open_authorize({"client_id": client.client_id, "request_uri": uri, name: "outside"})
    browser.sign_in()
    page = browser.allow()
    tokens = client.exchange(page.code).get_json()
    found = {"state": page.parameters["state"], "nonce": claims_of(tokens["id_token"]).get("nonce")}
    assert found[name] == "inside"


def test_ensure_authorization_request_with_long_nonce(
    browser: Browser, client: FapiParty, user: User
) -> None:
    _, tokens = flow(browser, client, nonce="n" * 1000)
    assert claims_of(tokens["id_token"])["nonce"] == "n" * 1000


def test_ensure_authorization_request_with_long_state(
    browser: Browser, client: FapiParty, user: User
) -> None:
    page, _ = flow(browser, client, state="s" * 1000)
    assert page.parameters["state"] == "s" * 1000


def test_state_only_outside_request_object_not_used(
    browser: Browser, client: FapiParty, user: User
) -> None:
    uri = client.push(state=None).get_json()["request_uri"]
    browser.open_authorize({"client_id": client.client_id, "request_uri": uri, "state": "outside"})
    browser.sign_in()
    page = browser.allow()
    assert page.parameters.keys() == {"code", "iss"}


def test_ensure_request_object_without_redirect_uri_fails(client: FapiParty) -> None:
    assert refused(client.push(redirect_uri=None), "invalid_request")


def test_plain_fapi_tolerate_unregistered_redirect_uri(client: FapiParty) -> None:
    uri = client.redirect_uri + "/other"
    assert refused(client.push(redirect_uri=uri), "invalid_request")


def test_ensure_client_id_in_token_endpoint(
    browser: Browser, client: FapiParty, other: FapiParty, user: User
) -> None:
    code = client.approve(browser).code
    assert refused(client.exchange(code, client_id=other.client_id), "invalid_client")
    theirs = {**other.credentials(), "client_id": other.client_id}
    assert refused(client.exchange(code, **theirs), "invalid_grant")


def test_ensure_signed_client_assertion_with_rs256_fails(
    app: Flask, browser: Browser, user: User
) -> None:
    client = make_fapi_client(app, "PS256")
    code, right = client.approve(browser).code, client.assertion()
    wrong = client.assertion({"alg": "RS256"})
    assert refused(client.exchange(code, client_assertion=wrong), "invalid_client")
    assert client.exchange(code, client_assertion=right).status_code == 200


def test_ensure_client_assertion_in_token_endpoint(
    browser: Browser, client: FapiParty, user: User
) -> None:
    nothing = {"client_assertion": None, "client_assertion_type": None}
    answer = client.exchange(client.approve(browser).code, client_id=client.client_id, **nothing)
    assert refused(answer, "invalid_client")


def exchange_with(browser: Browser, client: FapiParty, **claims: Any) -> Any:
    code = client.approve(browser).code
    return client.exchange(code, client_assertion=client.assertion(**claims))


def test_ensure_client_assertion_with_exp_is_5_minutes_in_past_fails(
    browser: Browser, client: FapiParty, user: User
) -> None:
    exp = client.claims()["iat"] - 300
    assert refused(exchange_with(browser, client, exp=exp), "invalid_client")


def test_ensure_client_assertion_with_wrong_aud_fails(
    browser: Browser, client: FapiParty, user: User
) -> None:
    aud = "https://www.other1.example.com/"
    assert refused(exchange_with(browser, client, aud=aud), "invalid_client")


def test_ensure_client_assertion_with_no_sub_fails(
    browser: Browser, client: FapiParty, user: User
) -> None:
    assert refused(exchange_with(browser, client, sub=None), "invalid_client")


def push_with(client: FapiParty, **claims: Any) -> Any:
    return client.push(client_assertion=client.assertion(**claims))


def test_par_ensure_jwt_client_assertions_nbf_8_seconds_in_the_future_is_accepted(
    client: FapiParty,
) -> None:
    now = client.claims()["iat"]
    assert push_with(client, nbf=now + 8, iat=now + 8).status_code == 201


def test_par_ensure_jwt_client_assertions_nbf_over_60_seconds_in_the_future_fails(
    client: FapiParty,
) -> None:
    """The suite sets them 62 seconds ahead, and its request may take a moment."""
    later = client.claims()["iat"] + 55
    assert refused(push_with(client, nbf=later, iat=later, exp=later + 60), "invalid_client")


def test_par_test_array_as_audience_fails(client: FapiParty) -> None:
    answer = push_with(client, aud=[ISSUER, "https://other.example"])
    assert refused(answer, "invalid_client")
    assert refused(push_with(client, aud=[ISSUER]), "invalid_client")


def test_par_test_par_endpoint_url_as_audience_fails(client: FapiParty) -> None:
    assert refused(push_with(client, aud=f"{ISSUER}/oauth2/par"), "invalid_client")


def test_par_test_token_endpoint_url_as_audience_fails(client: FapiParty) -> None:
    assert refused(push_with(client, aud=f"{ISSUER}/oauth2/token"), "invalid_client")


def test_ensure_invalid_client_assertions_fail(app: Flask) -> None:
    client = make_fapi_client(app, "PS256")
    now, other = client.claims()["iat"], "https://www.other1.example.com/"
    endpoints = [f"{ISSUER}/oauth2/{name}" for name in ("par", "token")]
    wrong: list[dict[str, Any]] = [
        *({name: value} for name in ("sub", "iss", "aud") for value in (None, other)),
        *({"aud": value} for value in (*endpoints, [ISSUER, other])),
        {"exp": now - 300},
        {"iat": now + 62, "nbf": now + 62, "exp": now + 122},
    ]
    bad = ("invalid_client", "invalid_request")
    for claims in wrong:
        assert refused(push_with(client, **claims), *bad), claims
    unsecured = unsigned({"alg": "none"}, client.claims())
    tampered = client.assertion()[:-8] + "AAAAAAAA"
    for assertion in (None, unsecured, tampered, client.assertion({"alg": "RS256"})):
        assert refused(client.push(client_assertion=assertion), *bad), assertion
    for kind in (None, "urn:ietf:params:oauth:client-assertion-type:other"):
        assert refused(client.push(client_assertion_type=kind), *bad), kind
    assert push_with(client, iat=now + 8, nbf=now + 8).status_code == 201
    assert client.push().status_code == 201


def test_refresh_token_is_not_rotated(
    browser: Browser, client: FapiParty, user: User, clock: Clock
) -> None:
    """The module refresh-token: the one before has to work 30 seconds later, too."""
    _, tokens = flow(browser, client)
    for _ in range(2):
        second = client.refresh(tokens["refresh_token"]).get_json()
        assert second["access_token"] != tokens["access_token"]
        assert client.dpop.userinfo(client, second["access_token"]).status_code == 200
        clock.move(seconds=30)


# ---- the plan Message Signing: signed requests ----


def pushed(signer: FapiParty, header: dict[str, Any] | None = None, **claims: Any) -> Any:
    return signer.push(request=made(signer, header, **claims))


BAD = ("invalid_request_object",)


def test_the_first_client_of_the_suite_sends_no_typ(signer: FapiParty) -> None:
    assert pushed(signer, {"typ": None}).status_code == 201


def test_ensure_request_object_with_multiple_aud_succeeds(signer: FapiParty) -> None:
    assert pushed(signer, aud=[ISSUER, "https://other1.example.com"]).status_code == 201


def test_ensure_request_object_with_nbf_8_seconds_in_the_future_is_accepted(
    signer: FapiParty,
) -> None:
    assert pushed(signer, nbf=signer.claims()["iat"] + 8).status_code == 201


def test_ensure_request_object_without_exp_fails(signer: FapiParty) -> None:
    assert refused(pushed(signer, exp=LEFT_OUT), *BAD)


def test_ensure_request_object_without_nbf_fails(signer: FapiParty) -> None:
    assert refused(pushed(signer, nbf=LEFT_OUT), *BAD)


def test_ensure_expired_request_object_fails(signer: FapiParty) -> None:
    assert refused(pushed(signer, exp=signer.claims()["iat"] - 300), *BAD)


def test_ensure_request_object_with_bad_aud_fails(signer: FapiParty) -> None:
    assert refused(pushed(signer, aud="https://www.other1.example.com/"), *BAD)


def test_ensure_request_object_with_exp_over_60_fails(signer: FapiParty) -> None:
    now = signer.claims()["iat"]
    assert refused(pushed(signer, exp=now + 70 * 60), *BAD)
    assert refused(pushed(signer, nbf=now - 50 * 60, exp=now + 20 * 60), *BAD)


def test_ensure_request_object_with_nbf_over_60_fails(signer: FapiParty) -> None:
    now = signer.claims()["iat"]
    assert refused(pushed(signer, nbf=now - 70 * 60), *BAD)


def test_ensure_signed_request_object_with_rs256_fails(app: Flask) -> None:
    signer = make_fapi_client(app, "PS256", request_object_signing_alg="PS256")
    header = {"alg": "RS256", "typ": "oauth-authz-req+jwt"}
    sent = sign(signer.claims(**signer.parameters()), signer.key, **header)
    assert refused(signer.push(request=sent), *BAD)


def test_ensure_request_object_signature_algorithm_is_not_none(signer: FapiParty) -> None:
    sent = unsigned({"alg": "none"}, signer.claims(**signer.parameters()))
    assert refused(signer.push(request=sent), *BAD)


def test_ensure_request_object_with_invalid_signature_fails(signer: FapiParty) -> None:
    sent = made(signer)[:-6] + "AAAAAA"
    assert refused(signer.push(request=sent), *BAD)


def test_ensure_matching_key_in_authorization_request(signer: FapiParty) -> None:
    claims = {**signer.parameters(), **signer.claims(nbf=signer.claims()["iat"])}
    sent = sign(claims, OTHER_EC, typ="oauth-authz-req+jwt")
    assert refused(signer.push(request=sent), *BAD)


def test_ensure_unsigned_request_at_par_endpoint_fails(signer: FapiParty) -> None:
    assert refused(signer.push(), "invalid_request")


def test_par_authorization_request_containing_request_uri(signer: FapiParty) -> None:
    assert refused(pushed(signer, request_uri="urn:x"), *BAD)
