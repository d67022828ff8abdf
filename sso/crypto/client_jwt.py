"""JWTs that clients sign: assertions (RFC 7523) and request objects (RFC 9101)."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.util import urlsafe_b64decode

from sso.crypto import client_keys
from sso.crypto.client_keys import ClientKey

MAX_LENGTH = 16_000  # characters; libraries put chains of certificates into the header
AHEAD = 45  # seconds that a clock may be ahead; FAPI 2.0 Security Profile wants 10 to 60
MAX_LIFETIME = 3600
MAX_ID = 255
LATEST = 1 << 37  # beyond any moment that is meant, and a date


class InvalidJwt(ValueError):
    """A JWT is not accepted; `str()` says why, without anything of what was sent."""


@dataclass(frozen=True)
class ClientJwt:
    """A JWT as it was sent: nothing of it is verified."""

    text: str
    header: Mapping[str, Any]
    claims: Mapping[str, Any]

    @property
    def kid(self) -> str | None:
        kid = self.header.get("kid")
        if kid is None or (isinstance(kid, str) and len(kid) <= client_keys.MAX_KID):
            return kid
        raise InvalidJwt("its kid is not a short text")

    @property
    def alg(self) -> str:
        alg = self.header.get("alg")
        return client_keys.usual(alg) if isinstance(alg, str) else ""


def read(text: str) -> ClientJwt:
    """Take a JWT apart. Raises `InvalidJwt`."""
    if len(text) > MAX_LENGTH:
        raise InvalidJwt(f"it is longer than {MAX_LENGTH} characters")
    try:
        header, claims, _ = text.split(".")
        return ClientJwt(text, read_object(header), read_object(claims))
    except (ValueError, RecursionError):
        raise InvalidJwt("it is not a signed JWT, or a name in it is there twice") from None


def verify(
    jwt: ClientJwt, keys: Iterable[ClientKey], algorithms: Collection[str], types: Collection[Any]
) -> None:
    """Verify header and signature. `types`: its `typ`; `None` if it may have none.

    Raises `InvalidJwt`.
    """
    alg, typ = jwt.alg, jwt.header.get("typ")
    if alg not in algorithms:
        raise InvalidJwt(f"its alg is none of {', '.join(algorithms)}")
    if (typ.lower() if isinstance(typ, str) else typ) not in types:
        raise InvalidJwt(f"its typ is not {next(iter(types))}")
    if "crit" in jwt.header or "b64" in jwt.header:
        raise InvalidJwt("its header has crit or b64")
    fitting = client_keys.fitting(keys, jwt.kid, alg)
    for key in fitting:
        try:
            jws.deserialize_compact(jwt.text, key, registry=registry(jwt.header["alg"]))
        except (JoseError, ValueError, TypeError):
            continue
        return
    why = "the signature is wrong" if fitting else "none has its kid and fits its alg"
    raise InvalidJwt(f"it was not signed with a key of the client; {why}")


@cache
def registry(alg: str) -> jws.JWSRegistry:
    """What verifies a signature of this algorithm, and looks at nothing else in the header.

    Keys and certificates in it count for nothing, whatever they are (RFC 7515 §4).
    """
    made = jws.JWSRegistry(algorithms=[alg], strict_check_header=False)
    made.header_registry = {}
    made.max_header_length = MAX_LENGTH
    return made


def expiry(claims: Mapping[str, Any], now: float) -> float:
    """The moment when a JWT expires, once its times are checked. Raises `InvalidJwt`."""
    exp = moment(claims, "exp")
    if exp is None:
        raise InvalidJwt("it has no exp")
    if exp <= now:
        raise InvalidJwt("it has expired; check the clock of the client")
    if exp > now + MAX_LIFETIME + AHEAD:
        raise InvalidJwt("its exp is more than an hour ahead")
    for name in ("iat", "nbf"):
        if (moment(claims, name) or 0) > now + AHEAD:
            raise InvalidJwt(f"its {name} is in the future; check the clock of the client")
    return exp


def moment(claims: Mapping[str, Any], name: str) -> float | None:
    """A moment that is named. Raises `InvalidJwt`."""
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LATEST:
        return value
    raise InvalidJwt(f"its {name} is not a number of seconds")


def read_object(segment: str) -> dict[str, Any]:
    """The JSON object in a part of a JWT. Raises `ValueError` and `RecursionError`."""
    found = json.loads(
        urlsafe_b64decode(segment.encode("ascii")),
        object_pairs_hook=_without_duplicates,
        parse_constant=_refuse,
    )
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(constant)
