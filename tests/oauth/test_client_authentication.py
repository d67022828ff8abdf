"""private_key_jwt at every endpoint that authenticates clients, and each way to get it wrong."""

import hmac
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from flask import Flask
from joserfc.jwk import RSAKey
from joserfc.util import urlsafe_b64encode
from werkzeug.test import TestResponse

from sso.crypto import client_jwt
from sso.models import User
from sso.oauth import key_sets
from tests.conftest import ON_POSTGRESQL, Clock, Statements
from tests.support.actors import BASE, ISSUER, Browser, RelyingParty
from tests.support.factories import make_client
from tests.support.signing import (
    ASSERTION_TYPE,
    EC,
    KEYS,
    OTHER_EC,
    RSA,
    KeyedParty,
    make_keyed_client,
    public,
    sign,
    unsigned,
)

Count = Callable[[], AbstractContextManager[Statements]]
TOKEN = ISSUER + "/oauth2/token"
PAR = ISSUER + "/oauth2/par"


def ask(client: RelyingParty, assertion: str | None, **form: str) -> TestResponse:
    """Ask about a token, which needs authentication and nothing else."""
    given = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion, **form}
    sent = {name: value for name, value in given.items() if value is not None}
    return client.post("/oauth2/introspect", {"token": "t", **sent})


def refused(answer: TestResponse, words: str, status: int = 401) -> bool:
    body = answer.get_json()
    error = "invalid_client" if status == 401 else "invalid_request"
    assert (answer.status_code, body["error"]) == (status, error), body
    assert "WWW-Authenticate" not in answer.headers
    assert words in body["error_description"], body
    return True


@pytest.fixture
def bank(app: Flask) -> KeyedParty:
    return make_keyed_client(app)


@pytest.mark.parametrize("alg", KEYS)
def test_the_whole_flow(app: Flask, user: User, browser: Browser, alg: str) -> None:
    client = make_keyed_client(app, alg)
    tokens = client.exchange(browser.approve(client).code).get_json()
    assert client.introspect(tokens["access_token"]).get_json()["active"] is True
    tokens = client.refresh(tokens["refresh_token"]).get_json()
    assert client.revoke(tokens["refresh_token"]).status_code == 200
    pushed = client.post("/oauth2/par", {**client.parameters(), **client.credentials()})
    assert pushed.status_code == 201


def test_its_cost(
    app: Flask, user: User, browser: Browser, bank: KeyedParty, statements: Count
) -> None:
    """One look at the client before the transaction, and one row for the assertion."""
    bank.exchange(browser.approve(bank).code)
    code = browser.authorize(bank).code
    with statements() as seen:
        assert bank.exchange(code).status_code == 200
    assert (len(seen), seen.commits) == ((4, 0) if ON_POSTGRESQL else (5, 2))


def test_once_even_if_the_request_fails(bank: KeyedParty) -> None:
    form = {"grant_type": "authorization_code", "redirect_uri": bank.redirect_uri, "code": "x",
            **bank.credentials()}  # fmt: skip
    first, second = bank.post("/oauth2/token", form), bank.post("/oauth2/token", form)
    assert first.get_json()["error"] == "invalid_grant"
    assert refused(second, "its jti was used before")


def test_an_identifier_is_used_by_a_client_alone(app: Flask, bank: KeyedParty) -> None:
    other = make_keyed_client(app)
    for client in (bank, other):
        assert ask(client, client.assertion(jti="1")).status_code == 200
    assert refused(ask(bank, bank.assertion(jti="1")), "its jti was used before")


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"iss": None}, "iss and sub"),
        ({"iss": "another"}, "iss and sub"),
        ({"iss": ["a"]}, "iss and sub"),
        ({"sub": None}, "iss and sub"),
        ({"sub": 7}, "iss and sub"),
        ({"sub": {}}, "iss and sub"),
        ({"aud": None}, "its aud"),
        ({"aud": []}, "its aud"),
        ({"aud": 7}, "its aud"),
        ({"aud": {}}, "its aud"),
        ({"aud": ISSUER + "/"}, "its aud"),
        ({"aud": "https://other.example"}, "its aud"),
        ({"aud": [ISSUER, "https://other.example"]}, "its aud"),
        ({"aud": [[ISSUER]]}, "its aud"),
        ({"aud": "x" * 1500}, "its aud"),
        ({"exp": None}, "it has no exp"),
        ({"exp": "soon"}, "its exp is not a number"),
        ({"exp": True}, "its exp is not a number"),
        ({"exp": []}, "its exp is not a number"),
        ({"exp": -1}, "its exp is not a number"),
        ({"exp": 10**400}, "its exp is not a number"),
        ({"exp": 1}, "it has expired"),
        ({"iat": "now"}, "its iat is not a number"),
        ({"iat": False}, "its iat is not a number"),
        ({"nbf": "now"}, "its nbf is not a number"),
        ({"jti": None}, "it has no jti"),
        ({"jti": ""}, "it has no jti"),
        ({"jti": 7}, "it has no jti"),
        ({"jti": "j" * 256}, "it has no jti"),
    ],
)
def test_claims(bank: KeyedParty, claims: dict[str, Any], words: str) -> None:
    assert refused(ask(bank, bank.assertion(**claims)), words)


def test_what_a_client_may_leave_out(bank: KeyedParty) -> None:
    assert ask(bank, bank.assertion(iat=None)).status_code == 200
    assert ask(bank, bank.assertion({"kid": None})).status_code == 200
    assert ask(bank, bank.assertion(), client_id=bank.client_id).status_code == 200
    assert ask(bank, bank.assertion({"typ": "JWT", "x": 1}, private="claim")).status_code == 200
    assert ask(bank, bank.assertion({"typ": "client-authentication+jwt"})).status_code == 200


def test_certificates_in_the_header_count_for_nothing(bank: KeyedParty) -> None:
    """MSAL sends a list of them, older versions a text; both name no key, only a thumbprint."""
    thumbprints = {"kid": None, "x5t": "a" * 27, "x5t#S256": "b" * 43}
    for x5c in (["MIID" * 600] * 3, "MIID" * 600, 7, []):
        header = {**thumbprints, "x5c": x5c, "x5u": "no URL", "jku": {}, "jwk": public(OTHER_EC)}
        assert ask(bank, bank.assertion(header)).status_code == 200, x5c
    too_long = bank.assertion({"x5c": ["MIID" * 600] * 5})
    assert refused(ask(bank, too_long), "longer than 16000 characters")


@pytest.mark.parametrize(
    "aud", [ISSUER, [ISSUER], TOKEN, [ISSUER, TOKEN], ISSUER + "/oauth2/introspect"]
)
def test_audiences_of_ordinary_clients(bank: KeyedParty, aud: Any) -> None:
    assert ask(bank, bank.assertion(aud=aud)).status_code == 200


@pytest.mark.parametrize("aud", [[ISSUER], TOKEN, PAR, [PAR], ISSUER + "/oauth2/introspect"])
def test_audiences_of_fapi_clients(app: Flask, aud: Any) -> None:
    client = make_keyed_client(app, profile="fapi2")
    words = f"its aud has to be the issuer {ISSUER}, as a text"
    assert refused(ask(client, client.assertion(aud=aud)), words)
    assert ask(client, client.assertion()).status_code == 200


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"iat": 30}, None),
        ({"nbf": 30}, None),
        ({"iat": 8, "nbf": 8}, None),
        ({"iat": 70}, "its iat is in the future; check the clock"),
        ({"nbf": 70}, "its nbf is in the future"),
        ({"iat": 300, "exp": 360}, "its iat is in the future"),
        ({"iat": -30, "exp": 30}, None),
        ({"iat": -300, "exp": -240}, "it has expired; check the clock"),
        ({"iat": -310, "exp": 3000}, "5 minutes ago; check the clock"),
        ({"exp": 3600}, None),
        ({"exp": 3700}, "more than an hour ahead"),
        ({"exp": 0}, "it has expired"),
    ],
)
def test_clocks(clock: Clock, bank: KeyedParty, claims: dict[str, int], words: str | None) -> None:
    now = bank.claims()["iat"]
    answer = ask(bank, bank.assertion(**{name: now + value for name, value in claims.items()}))
    assert answer.status_code == 200 if words is None else refused(answer, words)


def test_a_used_identifier_is_kept_as_long_as_it_could_be_used(
    clock: Clock, app: Flask, bank: KeyedParty
) -> None:
    long, now = bank.assertion(exp=bank.claims()["iat"] + 3600), bank.claims()["iat"]
    without_iat = bank.assertion(iat=None, exp=now + 3600)
    assert [ask(bank, one).status_code for one in (long, without_iat)] == [200, 200]
    clock.move(minutes=4)
    app.test_cli_runner().invoke(args=["purge"])
    assert refused(ask(bank, long), "used before")
    clock.move(minutes=2)
    app.test_cli_runner().invoke(args=["purge"])
    assert refused(ask(bank, long), "5 minutes ago")
    assert refused(ask(bank, without_iat), "used before")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"alg": "RS256"}, "not signed with"),
        ({"alg": "PS256"}, "not signed with"),
        ({"typ": "at+jwt"}, "its typ is not"),
        ({"typ": "oauth-authz-req+jwt"}, "its typ is not"),
        ({"typ": "dpop+jwt"}, "its typ is not"),
        ({"typ": 7}, "its typ is not"),
        ({"kid": "another"}, "not signed with"),
        ({"kid": 7}, "its kid is not a short text"),
        ({"kid": "k" * 201}, "its kid is not a short text"),
        ({"crit": ["exp"], "exp": 1}, "has crit or b64"),
        ({"crit": []}, "has crit or b64"),
        ({"b64": True}, "has crit or b64"),
        ({"x5c": ["x" * 500]}, "not signed with"),
        ({"alg": "none"}, "its alg is none of"),
        ({"alg": "HS256"}, "its alg is none of"),
        ({"alg": ["ES256"]}, "its alg is none of"),
        ({"alg": None}, "its alg is none of"),
    ],
)
def test_headers(bank: KeyedParty, header: dict[str, Any], words: str) -> None:
    """They are compared before the signature, which here is none."""
    head = {"alg": "ES256", "kid": "k1", **header}
    sent = unsigned({k: v for k, v in head.items() if v is not None}, bank.claims(), b"x" * 64)
    assert refused(ask(bank, sent), words)


@pytest.mark.parametrize(("alg", "key"), [("ES256", EC), ("RS256", RSA)])
def test_a_public_key_is_no_secret(app: Flask, alg: str, key: Any) -> None:
    """HS256, with what everybody knows as the secret."""
    client = make_keyed_client(app, alg)
    for known in (key.as_pem(private=False), json.dumps(public(key)).encode(), b""):
        begin = unsigned({"alg": "HS256", "kid": "k1"}, client.claims()).rpartition(".")[0]
        mac = hmac.digest(known, begin.encode(), "sha256")
        sent = f"{begin}.{urlsafe_b64encode(mac).decode()}"
        assert refused(ask(client, sent), "its alg is none of")


def test_signatures_that_are_none(bank: KeyedParty) -> None:
    head, claims, _ = bank.assertion().split(".")
    for signature in ("", "AAAA", "A" * 86, "!"):
        assert refused(ask(bank, f"{head}.{claims}.{signature}"), "not signed with")


def test_keys_that_are_not_the_clients(app: Flask, bank: KeyedParty) -> None:
    other = make_keyed_client(app, jwks={"keys": [public(OTHER_EC, "k2")]})
    for kid in ("k1", "k2", None):
        assert refused(ask(bank, sign(bank.claims(), OTHER_EC, kid=kid)), "not signed with")
    # A key that the assertion brings counts for nothing.
    brought = sign(bank.claims(), OTHER_EC, kid=None, jwk=public(OTHER_EC))
    assert refused(ask(bank, brought), "not signed with")
    private = {**OTHER_EC.as_dict(private=True)}
    assert refused(ask(bank, sign(bank.claims(), OTHER_EC, jwk=private)), "not signed with")
    assert ask(other, sign(other.claims(), OTHER_EC, kid="k2")).status_code == 200


def test_several_keys_of_a_client(app: Flask) -> None:
    """A client that changes its key has two for a while."""
    client = make_keyed_client(app, jwks={"keys": [public(OTHER_EC, "old"), public(EC, "new")]})
    for key, kid in ((OTHER_EC, "old"), (EC, "new"), (OTHER_EC, None), (EC, None)):
        assert ask(client, sign(client.claims(), key, kid=kid)).status_code == 200
    assert refused(ask(client, sign(client.claims(), EC, kid="old")), "not signed with")


def test_the_algorithm_of_a_key_and_of_a_client(app: Flask) -> None:
    both = {"keys": [public(RSA, alg="PS256")]}
    client = make_keyed_client(app, "PS256", jwks=both)
    assert ask(client, client.assertion()).status_code == 200
    assert refused(ask(client, client.assertion({"alg": "RS256"})), "not signed with")
    one = make_keyed_client(app, "PS256", token_endpoint_auth_signing_alg="PS256")
    assert ask(one, one.assertion()).status_code == 200
    assert refused(ask(one, one.assertion({"alg": "RS256"})), "its alg is none of PS256")
    fapi = make_keyed_client(app, "PS256", profile="fapi2")
    assert ask(fapi, fapi.assertion()).status_code == 200
    assert refused(ask(fapi, fapi.assertion({"alg": "RS256"})), "its alg is none of")


def test_a_small_key_cannot_even_be_stored(app: Flask) -> None:
    with pytest.warns(Warning, match="2048"):
        small = RSAKey.generate_key(1024)
    with pytest.raises(ValueError, match="2048 to 4096"):
        make_keyed_client(app, jwks={"keys": [public(small)]})


@pytest.mark.parametrize(
    "claims",
    [
        '{"iss": "CLIENT", "iss": "CLIENT", "sub": "CLIENT"}',
        '{"sub": "CLIENT", "exp": NaN}',
        '{"sub": "CLIENT", "exp": Infinity}',
        "[]",
        '"text"',
        "null",
        "",
        "{",
        "[" * 2000,
    ],
)
def test_claims_that_are_not_an_object(bank: KeyedParty, claims: str) -> None:
    sent = sign(claims.replace("CLIENT", bank.client_id))
    assert refused(ask(bank, sent), "not a signed JWT")


@pytest.mark.parametrize("text", ["x", "a.b", "a.b.c", "a.b.c.d.e", "..", "é.é.é", "e30.e30."])
def test_what_is_not_a_jwt(bank: KeyedParty, text: str) -> None:
    assert ask(bank, text).status_code == 401


def test_every_name_is_there_once(bank: KeyedParty) -> None:
    """What comes twice could be read in two ways."""
    claims, head = bank.claims(nbf=1), {"alg": "ES256", "kid": "k1", "typ": "JWT", "crit": []}
    assert client_jwt.read(sign(json.dumps(claims))).claims == claims
    rest = bank.assertion().partition(".")[2]
    for name, value in claims.items():
        twice = f'{json.dumps(claims)[:-1]}, "{name}": {json.dumps(value)}}}'
        with pytest.raises(client_jwt.InvalidJwt, match="there twice"):
            client_jwt.read(sign(twice))
    for name, value in head.items():
        twice = f'{json.dumps(head)[:-1]}, "{name}": {json.dumps(value)}}}'
        doubled = urlsafe_b64encode(twice.encode()).decode()
        assert refused(ask(bank, f"{doubled}.{rest}"), "there twice"), name


def test_every_claim_of_a_huge_size(app: Flask) -> None:
    huge: dict[str, list[Any]] = {
        **{name: ["x" * 9000, ["x"] * 2000, 10**4000] for name in ("iss", "sub", "aud", "jti")},
        **{name: ["1" * 9000, [1] * 2000, 10**4000, 1e308] for name in ("exp", "iat", "nbf")},
    }
    for name, values in huge.items():
        client = make_keyed_client(app)
        for value in values:
            assert refused(ask(client, client.assertion(**{name: value})), f"{name}"), value
        assert ask(client, client.assertion()).status_code == 200
    for name in ("alg", "kid", "typ"):
        client = make_keyed_client(app)
        head = {"alg": "ES256", "kid": "k1", name: "x" * 9000}
        assert refused(ask(client, unsigned(head, client.claims(), b"x" * 64)), f"its {name}")


def test_forms(bank: KeyedParty) -> None:
    sent = bank.assertion()
    assert refused(ask(bank, sent, client_assertion_type="x"), "client_assertion_type is not")
    assert refused(bank.post("/oauth2/introspect", {"token": "t", "client_assertion": sent}),
                   "client_assertion_type is not")  # fmt: skip
    assert refused(ask(bank, None), "not a signed JWT")
    assert bank.client_id != bank.client_id.swapcase()
    for other in ("another", bank.client_id[:-1], bank.client_id[1:], bank.client_id + "x",
                  bank.client_id.swapcase()):  # fmt: skip
        assert refused(ask(bank, sent, client_id=other), "the client_id of the body")
    assert refused(ask(bank, sent, client_secret="x"), "two ways", 400)
    basic = {"Authorization": "Basic " + "eDp5"}
    form = {"token": "t", "client_assertion": sent, "client_assertion_type": ASSERTION_TYPE}
    assert refused(bank.post("/oauth2/introspect", form, headers=basic), "two ways", 400)
    for name in ("client_assertion", "client_assertion_type"):
        doubled = [*form.items(), (name, form[name])]
        answer = bank.app.test_client().post(
            f"{BASE}/oauth2/introspect",
            data="&".join(f"{name}={value}" for name, value in doubled),
            content_type="application/x-www-form-urlencoded",
        )
        assert answer.get_json()["error_description"] == f"The parameter '{name}' is repeated."
    assert refused(ask(bank, "a" * 16001), "longer than 16000")
    # None of all that has used the assertion up.
    assert ask(bank, sent).status_code == 200


def test_a_client_that_is_not_registered_for_it(app: Flask, bank: KeyedParty) -> None:
    secret = make_client(app)
    for client_id in (secret.client_id, "unknown", "", "x" * 800):
        sent = sign(bank.claims(iss=client_id, sub=client_id))
        assert refused(ask(bank, sent), "The client is unknown or disabled, or the assertion")
    for client_id in ("\0", "\ud800", "é", "a\nb"):
        sent = sign(bank.claims(iss=client_id, sub=client_id))
        assert refused(ask(bank, sent), "its iss and sub")
    # And the other way round: it has no secret.
    for form in ({"client_secret": ""}, {"client_secret": "x"}, {}):
        answer = bank.post("/oauth2/introspect",
                           {"token": "t", "client_id": bank.client_id, **form})  # fmt: skip
        assert answer.status_code == 401


def test_a_disabled_client(app: Flask, bank: KeyedParty) -> None:
    app.test_cli_runner().invoke(args=["client", "disable", bank.client_id])
    assert refused(ask(bank, bank.assertion()), "The client is unknown or disabled")


def test_a_key_is_replaced(app: Flask, bank: KeyedParty, tmp_path: Any) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [public(OTHER_EC)]}))
    runner = app.test_cli_runner()
    assert ask(bank, bank.assertion()).status_code == 200
    runner.invoke(args=["client", "update", bank.client_id, "--jwks", str(path)])
    assert refused(ask(bank, bank.assertion()), "not signed with")
    bank.key = OTHER_EC
    assert ask(bank, bank.assertion()).status_code == 200


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

    monkeypatch.setattr(key_sets, "of", change)
    assert refused(ask(bank, bank.assertion()), "has just been changed")
    assert ask(bank, bank.assertion()).status_code == 200
