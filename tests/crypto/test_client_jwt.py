"""Parsers of what clients send: nothing but their own error, whatever is sent."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.util import urlsafe_b64encode

from sso.crypto import client_jwt
from sso.crypto.client_jwt import InvalidJwt
from tests.support.signing import EC, ED, OTHER_EC, RSA, public

pytestmark = pytest.mark.slow

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
HEADERS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("alg", "kid", "typ", "crit", "b64", "jwk", "x5c"), JSON)
)
MEMBERS = ("kty", "crv", "n", "e", "x", "y", "d", "use", "key_ops", "alg", "kid")
KEYS = client_jwt.usable_keys({"keys": [public(EC), public(ED, "k2"), public(RSA, "k3")]})


def segment(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode()


@given(st.text() | st.tuples(st.text(), st.text(), st.text()).map(".".join))
def test_any_text(text: str) -> None:
    with suppress(InvalidJwt):
        client_jwt.read(text)


@given(HEADERS, st.dictionaries(st.sampled_from(["exp", "iat", "nbf", "x"]), JSON), st.binary())
def test_any_header_and_claims(header: Any, claims: Any, signature: bytes) -> None:
    text = f"{segment(header)}.{segment(claims)}.{urlsafe_b64encode(signature).decode()}"
    with suppress(InvalidJwt):
        jwt = client_jwt.read(text)
        client_jwt.expiry(jwt.claims, 1.7e9)
    with suppress(InvalidJwt):
        client_jwt.verify(client_jwt.read(text), KEYS, client_jwt.ALGORITHMS, ("jwt", None))
        raise AssertionError("nobody has signed it")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(MEMBERS, JSON)))
def test_any_key(members: dict[str, Any]) -> None:
    for jwk in (members, {**public(EC), **members}, {**public(RSA), **members}):
        for found in client_jwt.usable_keys({"keys": [jwk]}):
            assert found.algorithms
        client_jwt.key_errors({"keys": [jwk]})
    assert client_jwt.usable_keys(members) == ()


@pytest.mark.parametrize(
    "more",
    [{"key_ops": ["verify", "sign"]}, {"key_ops": []}, {"key_ops": "verify"}, {"use": "enc"},
     {"use": None}, {"d": "x"}, {"kid": ""}, {"kid": "k" * 201}, {"alg": "RS256"}],
    ids=str,
)  # fmt: skip
def test_a_key_that_is_for_something_else(more: dict[str, Any]) -> None:
    with pytest.raises(client_jwt.UnusableKey):
        client_jwt.parse_key({**public(EC), **more})
    near = {"key_ops": ["verify"], "use": "sig", "kid": "k" * 200, "alg": "ES256"}
    assert client_jwt.parse_key({**public(EC), **near}).algorithms == ("ES256",)


@pytest.mark.parametrize("name", ["d", "p", "q", "dp", "dq", "qi", "oth", "k"])
@pytest.mark.parametrize("key", [EC, ED, RSA], ids=["EC", "ED", "RSA"])
def test_each_private_part_is_refused_alone(key: Any, name: str) -> None:
    with pytest.raises(client_jwt.UnusableKey, match="private parts"):
        client_jwt.parse_key({**public(key), name: "AQAB"})
    assert client_jwt.parse_key(public(key)).algorithms


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
def test_a_time_that_is_null_is_not_an_absent_one(name: str) -> None:
    assert client_jwt.moment({}, name) is None
    with pytest.raises(InvalidJwt, match=f"its {name} is not a number"):
        client_jwt.moment({name: None}, name)
    with pytest.raises(InvalidJwt):
        client_jwt.expiry({"exp": 1060, name: None}, 1000)
    assert client_jwt.expiry({"exp": 1060}, 1000) == 1060


def test_a_kid_is_that_of_the_key() -> None:
    """A header without one fits every key; a key without one fits no header with one."""
    jwks = [public(EC), public(OTHER_EC, "k2")]
    keys = client_jwt.usable_keys({"keys": [{**jwks[0], "kid": None}, jwks[1]]})
    assert [key.kid for key in keys] == [None, "k2"]
    by_kid = {kid: client_jwt.fitting_keys(keys, kid, "ES256") for kid in (None, "k2", "k3")}
    assert by_kid == {None: [key.key for key in keys], "k2": [keys[1].key], "k3": []}
    assert client_jwt.fitting_keys(keys, None, "EdDSA") == []
