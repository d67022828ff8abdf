"""JWTs that clients sign, and the keys that verify them.

Assertions (RFC 7523) and request objects (RFC 9101) are such JWTs. The keys are JWKs (RFC 7517)
that were registered or read from a URL.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import Key, import_key
from joserfc.util import base64_to_int, urlsafe_b64decode

ALGORITHMS = ("PS256", "ES256", "EdDSA", "RS256")
FAPI_ALGORITHMS = ("PS256", "ES256", "EdDSA")  # FAPI 2.0 Security Profile §5.4.1
MAX_KEYS = 20
MAX_KID = 200
_RSA_BITS = (2048, 4096)
_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
_BY_CURVE = {("EC", "P-256"): ("ES256",), ("OKP", "Ed25519"): ("EdDSA",)}


class UnusableKey(ValueError):
    """The key cannot verify signatures here; `str()` says why."""


@dataclass(frozen=True)
class ClientKey:
    """A public key, and the algorithms that may be used with it."""

    kid: str | None
    algorithms: Sequence[str]
    key: Key


def parse_key(jwk: Any) -> ClientKey:
    """Return the public signing key of a JWK. Raises `UnusableKey`."""
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
    # Only the key itself: other members of a JWK, such as certificates, are ignored.
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
        algorithms = (
            [usual_name(alg)] if isinstance(alg, str) and usual_name(alg) in algorithms else []
        )
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


def usual_name(alg: str) -> str:
    """Return the name by which OIDC applications know an algorithm."""
    return "EdDSA" if alg == "Ed25519" else alg  # two names of one algorithm (RFC 9864)


def as_set(keys: Any) -> Any:
    """Return a JWK as a set of one; sets stay."""
    return {"keys": [keys]} if isinstance(keys, dict) and "kty" in keys else keys


def key_errors(jwks: Any) -> list[str]:
    """Return the first error of each key in a set that is to be registered."""
    if not isinstance(jwks, dict) or not isinstance(jwks.get("keys"), list):
        return ["the key set is not a JSON object with a list of keys"]
    keys = jwks["keys"]
    if not 0 < len(keys) <= MAX_KEYS:
        return [f"the key set has not between 1 and {MAX_KEYS} keys"]
    errors, kids = [], []
    for number, jwk in enumerate(keys, 1):
        try:
            kids.append(parse_key(jwk).kid)
        except UnusableKey as error:
            errors.append(f"key {number} of the key set is refused: {error}")
    if not errors and len(keys) > 1 and (None in kids or len(set(kids)) < len(kids)):
        errors.append("of several keys, each needs a kid of its own")
    return errors


def usable_keys(jwks: Any) -> tuple[ClientKey, ...]:
    """Return the keys of a set that can verify signatures, without the others (RFC 7517 §5)."""
    jwk_list = jwks.get("keys") if isinstance(jwks, Mapping) else None
    keys = []
    for jwk in (jwk_list if isinstance(jwk_list, list) else [])[:MAX_KEYS]:
        try:
            keys.append(parse_key(jwk))
        except UnusableKey:
            continue
    return tuple(keys)


def fitting_keys(keys: Iterable[ClientKey], kid: str | None, alg: str) -> list[Key]:
    """Return the keys that may have made a signature with this header."""
    alg = usual_name(alg)
    return [key.key for key in keys if alg in key.algorithms and kid in (None, key.kid)]


MAX_LENGTH = 16_000  # characters; libraries put chains of certificates into the header
AHEAD = 45  # seconds that a clock may be ahead; FAPI 2.0 Security Profile wants 10 to 60
MAX_LIFETIME = 3600
MAX_ID = 255
LATEST = 1 << 37  # seconds since 1970: later than any real time, but still a valid date


class JwtFault(StrEnum):
    """The faults of a JWT that callers distinguish."""

    AUDIENCE = "audience"
    CLIENT = "client"
    CLOCK = "clock"
    ISSUER = "issuer"
    SIGNATURE = "signature"
    SUBJECT = "subject"
    OVERTAKEN = "overtaken"  # what it was compared with has changed meanwhile
    USED_BEFORE = "used_before"


class InvalidJwt(ValueError):
    """The JWT is not accepted; `str()` says why, without any part of the JWT.

    `public`: what the sender may know, where `str()` would tell a stranger too much.
    """

    def __init__(
        self, description: str, fault: JwtFault | None = None, *, public: str | None = None
    ) -> None:
        super().__init__(description)
        self.fault, self.public = fault, public or description


@dataclass(frozen=True)
class ClientJwt:
    """A JWT as it was sent. Nothing in it is verified."""

    text: str
    header: Mapping[str, Any]
    claims: Mapping[str, Any]

    @property
    def kid(self) -> str | None:
        kid = self.header.get("kid")
        if kid is None or (isinstance(kid, str) and len(kid) <= MAX_KID):
            return kid
        raise InvalidJwt("its kid is not a short text")

    @property
    def alg(self) -> str:
        alg = self.header.get("alg")
        return usual_name(alg) if isinstance(alg, str) else ""


def read(text: str) -> ClientJwt:
    """Parse a JWT without verifying it. Raises `InvalidJwt`."""
    if len(text) > MAX_LENGTH:
        raise InvalidJwt(f"it is longer than {MAX_LENGTH} characters")
    try:
        header, claims, _ = text.split(".")
        return ClientJwt(text, read_object(header), read_object(claims))
    except (ValueError, RecursionError):
        raise InvalidJwt("it is not a signed JWT, or a name in it is there twice") from None


def verify(
    jwt: ClientJwt,
    keys: Iterable[ClientKey],
    algorithms: Collection[str],
    types: Collection[Any],
    signer: str = "the client",
) -> None:
    """Verify header and signature. `types`: its `typ`; `None` if it may have none.

    Raises `InvalidJwt`, which names the `signer`.
    """
    alg, typ = jwt.alg, jwt.header.get("typ")
    if alg not in algorithms:
        raise InvalidJwt(f"its alg is none of {', '.join(algorithms)}")
    if (typ.lower() if isinstance(typ, str) else typ) not in types:
        raise InvalidJwt(f"its typ is not {next(iter(types))}")
    if "crit" in jwt.header or "b64" in jwt.header:
        raise InvalidJwt("its header has crit or b64")
    fitting = fitting_keys(keys, jwt.kid, alg)
    for key in fitting:
        try:
            jws.deserialize_compact(jwt.text, key, registry=registry(jwt.header["alg"]))
        except (JoseError, ValueError, TypeError):
            continue
        return
    why = "the signature is wrong" if fitting else "none has its kid and fits its alg"
    raise InvalidJwt(f"it was not signed with a key of {signer}; {why}", JwtFault.SIGNATURE)


@cache
def registry(alg: str) -> jws.JWSRegistry:
    """Return a registry that verifies signatures of this algorithm only.

    It ignores everything else in the header, such as keys and certificates (RFC 7515 §4).
    """
    registry = jws.JWSRegistry(algorithms=[alg], strict_check_header=False)
    registry.header_registry = {}
    registry.max_header_length = MAX_LENGTH
    return registry


def expiry(claims: Mapping[str, Any], now: float, longest: int = MAX_LIFETIME) -> float:
    """Check the times of a JWT, and return when it expires. Raises `InvalidJwt`.

    `longest`: how many seconds ahead it may be.
    """
    exp = moment(claims, "exp")
    if exp is None:
        raise InvalidJwt("it has no exp")
    if exp <= now:
        raise InvalidJwt("it has expired; check the clock of the client", JwtFault.CLOCK)
    if exp > now + longest + AHEAD:
        hours = "an hour" if longest == 3600 else f"{longest // 3600} hours"
        raise InvalidJwt(f"its exp is more than {hours} ahead", JwtFault.CLOCK)
    for name in ("iat", "nbf"):
        if (moment(claims, name) or 0) > now + AHEAD:
            fault = f"its {name} is in the future; check the clock of the client"
            raise InvalidJwt(fault, JwtFault.CLOCK)
    return exp


def moment(claims: Mapping[str, Any], name: str) -> float | None:
    """Return the time in a claim; `None` without the claim. Raises `InvalidJwt`."""
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LATEST:
        return value
    raise InvalidJwt(f"its {name} is not a number of seconds")


def read_object(segment: str) -> dict[str, Any]:
    """Return the JSON object in a part of a JWT. Raises `ValueError` and `RecursionError`."""
    value = json.loads(
        urlsafe_b64decode(segment.encode("ascii")),
        object_pairs_hook=_without_duplicates,
        parse_constant=_refuse,
    )
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is there twice")
    return members


def _refuse(constant: str) -> None:
    raise ValueError(constant)
