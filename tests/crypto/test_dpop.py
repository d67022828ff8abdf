"""DPoP proofs (RFC 9449 §4): which ones are refused, and why."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from joserfc.jwk import Key, OctKey

from sso.crypto import dpop
from tests.support.actors import ISSUER
from tests.support.proofs import LEFT_OUT, DPoP, ath_of, make_key, sign

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
URL = ISSUER + "/oauth2/token"
IAT = int(NOW.timestamp())


@cache
def client() -> DPoP:
    return DPoP()


def verify(text: str, **more: Any) -> dpop.Proof:
    return dpop.verify(text, **{"method": "POST", "now": NOW, **more})


def fault(text: str, **more: Any) -> str:
    with pytest.raises(dpop.InvalidProof) as refused:
        verify(text, **more)
    assert str(refused.value).endswith(".")
    assert len(str(refused.value)) < 200
    return refused.value.fault


def proof(**claims: Any) -> str:
    return client().proof(**{"iat": IAT, **claims})


def test_a_good_one() -> None:
    found = verify(proof(jti="1", nonce="2", extra={"a": [1]}))
    assert (found.thumbprint, found.jti, found.nonce) == (client().jkt, "1", "2")
    assert found.issued_at == NOW
    more = client().proof(header={"kid": "unknown", "x5t": "y", "unheard_of": 1}, iat=IAT)
    assert verify(more).thumbprint == client().jkt


NO_TEXTS: tuple[Any, ...] = (None, "", 5, ["x"], {})
NO_TIMES: tuple[Any, ...] = (None, "1", True, [], -1, 1e300)
CLAIMS: list[tuple[str, Any]] = [
    *((name, LEFT_OUT) for name in ("jti", "htm", "htu", "iat")),
    *((name, value) for name in ("jti", "htm", "htu") for value in NO_TEXTS),
    *(("iat", value) for value in NO_TIMES),
    ("jti", "x" * 201),
    ("jti", "é"),
    ("htm", "post"),
    ("htm", "GET"),
    ("htu", "é"),
    ("nonce", 5),
    ("nonce", "é"),
    ("exp", IAT),
    ("exp", "never"),
    ("nbf", IAT + 61),
    ("nbf", {}),
]


@pytest.mark.parametrize(("name", "value"), CLAIMS)
def test_claims(name: str, value: Any) -> None:
    assert fault(proof(**{name: value})) == name


def test_clocks_that_are_off() -> None:
    for seconds in (-60, -30, -10, 10, 30, 60):
        dpop.check_age(verify(proof(iat=IAT + seconds)), NOW)
    for seconds in (-300, 300, -61, 61):
        with pytest.raises(dpop.InvalidProof):
            dpop.check_age(verify(proof(iat=IAT + seconds)), NOW)


def test_what_is_huge() -> None:
    """The whole is short, so that no part can be longer."""
    for name in ("jti", "htm", "htu", "nonce", "ath", "extra"):
        assert fault(proof(**{name: "x" * 4000}), access_token="a") == "jwt"
    for name in ("iat", "exp", "nbf"):
        for value in (10**1000, 1e308, 1 << 37):
            assert fault(proof(**{name: value})) == name
    for name in ("jti", "htm", "ath"):
        assert fault(proof(**{name: "x" * 2000}), access_token="a") == name
    for name in ("typ", "alg"):
        assert fault(replaced(0, {"typ": "dpop+jwt", "alg": "ES256", name: "x" * 2000})) == name
    jwk = public_jwk(client().key)
    for name in ("kty", "crv", "x", "y", "kid"):
        head = {"typ": "dpop+jwt", "alg": "ES256", "jwk": {**jwk, name: "x" * 2000}}
        assert fault(replaced(0, head)) == "jwk"


def test_exp_and_nbf_are_optional() -> None:
    assert verify(proof(exp=IAT + 300, nbf=IAT))


def test_the_access_token() -> None:
    assert verify(proof(ath=ath_of("a")), access_token="a")
    for ath in (LEFT_OUT, "", "x", ath_of("b"), 5):
        assert fault(proof(ath=ath), access_token="a") == "ath"


def public_jwk(key: Key) -> dict[str, Any]:
    return dict(key.as_dict(private=False))


HEADERS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "no typ": (lambda: {"typ": LEFT_OUT}, "typ"),
    "JWT": (lambda: {"typ": "JWT"}, "typ"),
    "typ of a wrong type": (lambda: {"typ": ["dpop+jwt"]}, "typ"),
    "no jwk": (lambda: {"jwk": LEFT_OUT}, "jwk"),
    "jwk as text": (lambda: {"jwk": json.dumps(public_jwk(client().key))}, "jwk"),
    "jwk with d": (lambda: {"jwk": client().key.as_dict(private=True)}, "jwk"),
    "empty jwk": (lambda: {"jwk": {}}, "jwk"),
    "unknown kty": (lambda: {"jwk": {"kty": "x"}}, "jwk"),
    "point that is not on the curve": (
        lambda: {"jwk": {**public_jwk(client().key), "x": "A" * 43}}, "jwk",
    ),
    "numbers": (lambda: {"jwk": {**public_jwk(client().key), "x": 5}}, "jwk"),
    "another key": (lambda: {"jwk": public_jwk(make_key())}, "signature"),
    "key of another type": (lambda: {"jwk": public_jwk(make_key("EdDSA"))}, "alg"),
    "for encryption": (lambda: {"jwk": {**public_jwk(client().key), "use": "enc"}}, "jwk"),
    "secret": (lambda: {"jwk": {"kty": "oct", "k": "AAAA"}}, "jwk"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "wrong"), HEADERS.values(), ids=HEADERS.keys())
def test_headers(made: Callable[[], dict[str, Any]], wrong: str) -> None:
    head = {"typ": "dpop+jwt", "alg": "ES256", "jwk": public_jwk(client().key)} | made()
    assert fault(replaced(0, {k: v for k, v in head.items() if v is not LEFT_OUT})) == wrong


def segment(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def replaced(part: int, value: Any) -> str:
    parts = proof().split(".")
    parts[part] = segment(value)
    return ".".join(parts)


def test_algorithms() -> None:
    head = {"typ": "dpop+jwt", "jwk": public_jwk(client().key)}
    for alg in ("none", "HS256", "ES384", "RS256", "", None, 5, ["ES256"], "es256"):
        assert fault(replaced(0, {**head, "alg": alg})) == "alg"
    assert fault(replaced(0, head)) == "alg"
    # The public key as the secret of an HMAC.
    secret = OctKey.import_key(json.dumps(public_jwk(client().key)).encode())
    assert fault(sign({**head, "alg": "HS256"}, {}, secret)) == "alg"
    none = f"{segment({**head, 'alg': 'none'})}.{proof().split('.')[1]}."
    assert fault(none) == "alg"


@pytest.mark.parametrize("bits", [1024, 8192])
def test_rsa_keys_of_unusual_sizes(bits: int) -> None:
    jwk = public_jwk(make_key("PS256"))
    jwk["n"] = base64.urlsafe_b64encode(b"\xf1" * (bits // 8)).rstrip(b"=").decode()
    assert fault(replaced(0, {"typ": "dpop+jwt", "alg": "PS256", "jwk": jwk})) == "jwk"


def test_crit() -> None:
    head = {"typ": "dpop+jwt", "alg": "ES256", "jwk": public_jwk(client().key)}
    crits: list[dict[str, Any]] = [{"crit": ["x"]}, {"crit": []}, {"b64": True}]
    for more in (*crits, {"b64": False, "crit": ["b64"]}):
        assert fault(replaced(0, {**head, **more})) == "crit"


def test_members_that_are_repeated() -> None:
    head = json.dumps({"typ": "dpop+jwt", "alg": "ES256", "jwk": public_jwk(client().key)})
    for name in ("typ", "alg", "jwk"):
        doubled = f'{head[:-1]}, "{name}": {json.dumps(json.loads(head)[name])}}}'
        assert fault(replaced(0, doubled)) == "jwt", name
    for name in ("kty", "crv", "x", "y", "d"):
        assert fault(replaced(0, head[:-2] + f', "{name}": "1", "{name}": "1"}}}}')) == "jwt", name
    claims = {"jti": "1", "htm": "POST", "htu": URL, "iat": IAT, "nbf": IAT, "exp": IAT + 9,
              "nonce": "1", "ath": ath_of("a")}  # fmt: skip
    body = json.dumps(claims)[:-1]
    assert verify(sign(json.loads(head), body + "}", client().key), access_token="a")
    for name, value in claims.items():
        twice = f'{body}, "{name}": {json.dumps(value)}}}'
        assert fault(sign(json.loads(head), twice, client().key), access_token="a") == "jwt", name
    for text in ("[]", "5", "null", "{", "", "[" * 900):
        assert fault(sign(json.loads(head), text, client().key)) == "jwt"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d",
        "é.é.é",
        "a,b",
        "x" * 5000,
        "\0.\0.\0",
        "e30.e30.",
        "W10.W10.",
    ],
)
def test_what_is_no_jwt(text: str) -> None:
    assert fault(text) in ("jwt", "typ")


def test_a_changed_signature() -> None:
    text = proof()
    assert fault(text[:-5] + ("AAAAA" if text[-5:] != "AAAAA" else "BBBBB")) == "signature"
    assert fault(replaced(1, {"jti": "1", "htm": "POST", "htu": URL, "iat": IAT})) == "signature"
    assert fault(text.rpartition(".")[0] + ".") == "signature"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
members = st.sampled_from(["typ", "alg", "jwk", "crit", "jti", "htm", "htu", "iat", "nonce", "kid"])
objects = st.dictionaries(members, json_values)


@pytest.mark.slow
@given(objects, objects, st.text(max_size=20))
@example({"typ": "dpop+jwt", "alg": "ES256", "jwk": {"kty": "EC", "crv": "P-256"}}, {}, "")
@example({"typ": "dpop+jwt", "alg": "PS256", "jwk": {"kty": "RSA", "n": "AQAB", "e": "A"}}, {}, "")
def test_anything_else_is_refused(header: Any, claims: Any, signature: str) -> None:
    fault(f"{segment(header)}.{segment(claims)}.{signature}")


@pytest.mark.slow
@given(objects)
def test_any_claims_are_refused_or_complete(claims: dict[str, Any]) -> None:
    head = {"typ": "dpop+jwt", "alg": "ES256", "jwk": public_jwk(client().key)}
    try:
        found = verify(sign(head, claims, client().key))
    except dpop.InvalidProof:
        return
    assert claims["htm"] == "POST"
    assert found.jti


@pytest.mark.slow
@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    fault(text)


def test_nonces_rotate() -> None:
    key, other = b"k" * 32, b"o" * 32
    nonce = dpop.make_nonce(key, NOW)
    assert dpop.is_recent(nonce, key, NOW + timedelta(seconds=120))
    assert dpop.is_recent(nonce, key, NOW - timedelta(seconds=60))
    for seconds in (180, -120):
        assert not dpop.is_recent(nonce, key, NOW + timedelta(seconds=seconds))
    assert not dpop.is_recent(nonce, other, NOW)
    assert nonce != dpop.make_nonce(key, NOW + timedelta(seconds=60))
