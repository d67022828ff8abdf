"""The modules of the plan "FAPI 2.0 Security Profile Final: Client Credentials Grant".

A test a module, named after it, with the errors that the suite takes. Variants: private_key_jwt,
DPoP, plain OAuth. The resource is this server's own API for provisioning.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso import clock as sso_clock
from sso.ratelimit import limiting
from tests.support.actors import BASE, ISSUER, ORIGIN, claims_of
from tests.support.factories import make_client
from tests.support.proofs import LEFT_OUT, DPoP
from tests.support.services import KeyedService
from tests.support.signing import KEYS, OTHER_EC, public

MODULES = [
    "discovery-end-point-verification",
    "happy-flow",
    "access-token-type-header-case-sensitivity",
    "check-dpop-proof-nbf-exp",
    "ensure-dpopproof-with-iat-10seconds-before-succeeds",
    "ensure-dpopproof-with-iat-10seconds-after-succeeds",
    "ensure-client-id-in-token-endpoint",
    "ensure-holder-of-key-required",
    "ensure-signed-client-assertion-with-RS256-fails",
    "ensure-client-assertion-in-token-endpoint",
    "ensure-client-assertion-with-exp-is-5-minutes-in-past-fails",
    "ensure-client-assertion-with-wrong-aud-fails",
    "ensure-client-assertion-with-no-sub-fails",
    "dpop-negative-tests",
]
SCIM, RESOURCE = f"{ISSUER}/scim", "/scim/v2/Users"
NONE = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6Im5vbmUifQ"  # {"typ":"dpop+jwt","alg":"none"}
NO_ALG = "eyJ0eXAiOiJkcG9wK2p3dCJ9"  # {"typ":"dpop+jwt"}


@dataclass
class Party(KeyedService):
    """A service of the profile, with a key for DPoP."""

    dpop: DPoP = field(default_factory=DPoP)

    def proof(self, token: str | None, **more: Any) -> str:
        return self.dpop.proof(RESOURCE, **{"token": token, "htm": "GET", **more})

    def get(self, token: str, proof: str | None = None, scheme: str = "DPoP") -> TestResponse:
        """Read the resource."""
        headers = {"Authorization": f"{scheme} {token}", "DPoP": proof or self.proof(token)}
        backend = self.app.test_client(use_cookies=False)
        return backend.get(BASE + RESOURCE, headers=headers, base_url=ORIGIN)

    def bound_token(self, **claims: Any) -> str:
        return self.token(self.dpop.header(**claims))


def make(app: Flask, alg: str = "ES256", **more: Any) -> Party:
    key = more.pop("key", KEYS[alg])
    made = make_client(
        app, name="Bank", profile="fapi2", grant_types=["client_credentials"], redirect_uris=[],
        jwks={"keys": [public(key)]}, apis=[f"{SCIM}=scim:read"], default_api=SCIM, **more,
    )  # fmt: skip
    return Party(app, made.client_id, "", "", None, key, alg)


@pytest.fixture
def client(app: Flask) -> Party:
    return make(app)


@pytest.fixture
def other(app: Flask) -> Party:
    return make(app, key=OTHER_EC)


def refused(answer: TestResponse, *errors: str) -> bool:
    assert answer.mimetype == "application/json"
    error = answer.get_json()["error"]
    return answer.status_code == (401 if error == "invalid_client" else 400) and error in errors


def now() -> int:
    return int(sso_clock.now().timestamp())


def name_of(module: str) -> str:
    return f"test_{module.replace('-', '_').lower()}"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_a_test(module: str) -> None:
    assert name_of(module) in globals()


def test_the_plan_is_whole() -> None:
    assert len(MODULES) == len(set(MODULES)) == 14


def test_discovery_end_point_verification(app: Flask) -> None:
    answer = app.test_client().get(f"{BASE}/.well-known/openid-configuration")
    metadata = answer.get_json()
    assert answer.mimetype == "application/json"
    assert metadata["issuer"] == ISSUER
    assert metadata["token_endpoint"] == f"{ISSUER}/oauth2/token"
    assert "client_credentials" in metadata["grant_types_supported"]
    assert "private_key_jwt" in metadata["token_endpoint_auth_methods_supported"]
    for name in ("dpop_signing", "token_endpoint_auth_signing"):
        assert {"PS256", "ES256", "EdDSA"} & set(metadata[f"{name}_alg_values_supported"]), name
    assert metadata["jwks_uri"]


def test_happy_flow(client: Party, other: Party) -> None:
    """Both clients read the resource; neither with what the other one has."""
    tokens = {}
    for party in (client, other):
        answer = party.ask(party.dpop.header())
        body = answer.get_json()
        assert answer.headers["Cache-Control"] == "no-store"
        assert body["token_type"].lower() == "dpop"
        assert body["expires_in"] > 0
        assert "refresh_token" not in body
        assert "id_token" not in body
        tokens[party.client_id] = token = body["access_token"]
        assert claims_of(token)["cnf"] == {"jkt": party.dpop.jkt}
        assert party.get(token).status_code == 200
    assert other.get(tokens[client.client_id]).status_code == 401
    assert client.get(tokens[other.client_id]).status_code == 401


def test_access_token_type_header_case_sensitivity(client: Party) -> None:
    token = client.bound_token()
    for scheme in ("dpop", "DPOP", "DPoP", "dPoP"):
        assert client.get(token, scheme=scheme).status_code == 200


def with_proofs(client: Party, **claims: Any) -> None:
    token = client.bound_token(**claims)
    assert client.get(token, client.proof(token, **claims)).status_code == 200


def test_check_dpop_proof_nbf_exp(client: Party) -> None:
    with_proofs(client, nbf=now(), exp=now() + 300)


def test_ensure_dpopproof_with_iat_10seconds_before_succeeds(client: Party) -> None:
    with_proofs(client, iat=now() - 10)


def test_ensure_dpopproof_with_iat_10seconds_after_succeeds(client: Party) -> None:
    with_proofs(client, iat=now() + 10)


def test_ensure_client_id_in_token_endpoint(client: Party, other: Party) -> None:
    answer = client.ask(client.dpop.header(), client_id=other.client_id)
    assert refused(answer, "invalid_client", "invalid_request")


def test_ensure_holder_of_key_required(client: Party) -> None:
    assert refused(client.ask(), "invalid_request", "invalid_grant", "invalid_dpop_proof")


def test_ensure_signed_client_assertion_with_rs256_fails(app: Flask) -> None:
    client = make(app, "PS256")
    wrong = client.assertion({"alg": "RS256"})
    assert refused(client.ask(client.dpop.header(), client_assertion=wrong), "invalid_client")
    assert client.ask(client.dpop.header()).status_code == 200


def test_ensure_client_assertion_in_token_endpoint(client: Party) -> None:
    nothing = {"client_assertion": None, "client_assertion_type": None}
    answer = client.ask(client.dpop.header(), client_id=client.client_id, **nothing)
    assert refused(answer, "invalid_client")


def ask_with(client: Party, **claims: Any) -> TestResponse:
    return client.ask(client.dpop.header(), client_assertion=client.assertion(**claims))


def test_ensure_client_assertion_with_exp_is_5_minutes_in_past_fails(client: Party) -> None:
    assert refused(ask_with(client, exp=now() - 300), "invalid_client")


def test_ensure_client_assertion_with_wrong_aud_fails(client: Party) -> None:
    assert refused(ask_with(client, aud="https://www.other1.example.com/"), "invalid_client")


def test_ensure_client_assertion_with_no_sub_fails(client: Party) -> None:
    assert refused(ask_with(client, sub=None), "invalid_client")


def test_dpop_negative_tests(client: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = limiting.Pauses(free=100, longest=1)
    many = replace(limiting.API_TOKEN, pair=pauses, ip_address=pauses)
    monkeypatch.setattr(limiting, "API_TOKEN", many)
    token = client.bound_token()

    def proof(**more: Any) -> str:
        return client.proof(**{"token": token, **more})

    private = client.dpop.key.as_dict(private=True)
    bad: dict[str, Callable[[], str]] = {
        "two": lambda: f"{proof()}, {proof()}",
        "not well-formed": lambda: proof().replace(".", ":"),
        **{
            f"no {name}": lambda name=name: proof(header={name: LEFT_OUT})  # type: ignore[misc]
            for name in ("typ", "jwk")
        },
        **{
            f"no {name}": lambda name=name: proof(**{name: LEFT_OUT})  # type: ignore[misc]
            for name in ("jti", "htm", "htu", "iat")
        },
        "no alg": lambda: NO_ALG + "." + proof().split(".", 1)[1],
        "no ath": lambda: proof(token=None),
        "other typ": lambda: proof(header={"typ": "JWT"}),
        "none": lambda: NONE + "." + proof().split(".")[1] + ".",
        "bad signature": lambda: proof()[:-6] + "AAAAAA",
        "private jwk": lambda: proof(header={"jwk": private}),
        "PUT": lambda: proof(htm="PUT"),
        "other htu": lambda: proof(htu="https://rp.example/"),
        "iat an hour ahead": lambda: proof(iat=now() + 3600),
        "iat an hour ago": lambda: proof(iat=now() - 3600),
        "other ath": lambda: proof(token="other"),
        "other key": lambda: DPoP().proof(RESOURCE, token=token, htm="GET"),
    }
    for name, made in bad.items():
        assert client.get(token, made()).status_code == 401, name
    htu = f"{ORIGIN}{BASE}{RESOURCE}"
    good: list[dict[str, Any]] = [
        {"htu": f"{htu}?q=1#f"},
        {"htu": htu.replace("http:", "HTTP:")},
        {"header": {"extra": 1, "kid": "k"}, "extra": {"a": 1}},
        {},
    ]
    for more in good:
        assert client.get(token, proof(**more)).status_code == 200, more
    used = proof(jti="fixed")
    assert [client.get(token, used).status_code for _ in range(2)] == [200, 401]
    backend = client.app.test_client(use_cookies=False)
    for scheme in ("DPoP", "Bearer"):
        headers = {"Authorization": f"{scheme} {token}"}
        answer = backend.get(BASE + RESOURCE, headers=headers, base_url=ORIGIN)
        assert answer.status_code == 401
