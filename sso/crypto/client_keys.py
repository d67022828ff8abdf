"""The public keys of clients (RFC 7517): what may be registered, and what verifies a signature."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import Key, import_key
from joserfc.util import base64_to_int

ALGORITHMS = ("PS256", "ES256", "EdDSA", "RS256")
FAPI_ALGORITHMS = ("PS256", "ES256", "EdDSA")  # FAPI 2.0 Security Profile §5.4.1
MAX_KEYS = 20
MAX_KID = 200
_RSA_BITS = (2048, 4096)
_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
_BY_CURVE = {("EC", "P-256"): ("ES256",), ("OKP", "Ed25519"): ("EdDSA",)}


class UnusableKey(ValueError):
    """A key cannot verify signatures here; `str()` says why."""


@dataclass(frozen=True)
class ClientKey:
    """A public key, and the algorithms that may be used with it."""

    kid: str | None
    algorithms: Sequence[str]
    key: Key


def parse(jwk: Any) -> ClientKey:
    """A public signing key of a JWK. Raises `UnusableKey`."""
    if not isinstance(jwk, dict):
        raise UnusableKey("it is not a JSON object")
    if any(name in jwk for name in _PRIVATE):
        raise UnusableKey("it has private parts; give the public key alone")
    kid, alg = jwk.get("kid"), jwk.get("alg")
    if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= MAX_KID):
        raise UnusableKey(f"its kid is not a text of at most {MAX_KID} characters")
    if jwk.get("use", "sig") != "sig":
        raise UnusableKey("its use is not sig")
    if "key_ops" in jwk and jwk["key_ops"] != ["verify"]:
        raise UnusableKey("its key_ops are not verify alone")
    # Only the key itself: the rest of a JWK, such as certificates, is not looked at.
    members = ("kty", "crv", "n", "e", "x", "y")
    texts = {name: jwk[name] for name in members if name in jwk}
    if not all(isinstance(value, str) for value in texts.values()):
        raise UnusableKey("its members are not texts")
    try:
        algorithms = _algorithms_of(texts)
        key = import_key(texts)
    except (JoseError, UnsupportedAlgorithm, ArithmeticError, LookupError, TypeError, ValueError):
        raise UnusableKey("it is not RSA of 2048 to 4096 bits, P-256 or Ed25519") from None
    if alg is not None:
        algorithms = [one for one in algorithms if isinstance(alg, str) and one == usual(alg)]
        if not algorithms:
            raise UnusableKey(f"its alg is not one of {', '.join(ALGORITHMS)} that fits its type")
    return ClientKey(kid, tuple(algorithms), key)


def _algorithms_of(jwk: Mapping[str, str]) -> Iterable[str]:
    if jwk["kty"] != "RSA":
        return _BY_CURVE[jwk["kty"], jwk["crv"]]
    least, most = _RSA_BITS
    # A huge exponent would make each verification slow.
    if least <= base64_to_int(jwk["n"]).bit_length() <= most and len(jwk["e"]) <= 6:
        return ("PS256", "RS256")
    raise ValueError("RSA numbers of an unusual size")


def usual(alg: str) -> str:
    """The name of an algorithm that OIDC applications know."""
    return "EdDSA" if alg == "Ed25519" else alg  # two names of one (RFC 9864)


def errors(jwks: Any) -> list[str]:
    """Why a key set may not be registered, each key's first error."""
    if not isinstance(jwks, dict) or not isinstance(jwks.get("keys"), list):
        return ["the key set is not a JSON object with a list of keys"]
    keys = jwks["keys"]
    if not 0 < len(keys) <= MAX_KEYS:
        return [f"the key set has not between 1 and {MAX_KEYS} keys"]
    found, kids = [], []
    for number, jwk in enumerate(keys, 1):
        try:
            kids.append(parse(jwk).kid)
        except UnusableKey as error:
            found.append(f"key {number} of the key set is refused: {error}")
    if not found and len(keys) > 1 and (None in kids or len(set(kids)) < len(kids)):
        found.append("of several keys, each needs a kid of its own")
    return found


def usable(jwks: Any) -> tuple[ClientKey, ...]:
    """The keys of a set that can verify; those that cannot are left out (RFC 7517 §5)."""
    keys = jwks.get("keys") if isinstance(jwks, Mapping) else None
    found = []
    for jwk in (keys if isinstance(keys, list) else [])[:MAX_KEYS]:
        try:
            found.append(parse(jwk))
        except UnusableKey:
            continue
    return tuple(found)


def fitting(keys: Iterable[ClientKey], kid: str | None, alg: str) -> list[Key]:
    """The keys that a signature with this header may have been made with."""
    alg = usual(alg)
    return [one.key for one in keys if alg in one.algorithms and kid in (None, one.kid)]
