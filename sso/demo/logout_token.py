"""Checks a logout token as a relying party has to (Back-Channel Logout 1.0 §2.6)."""

from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.jwk import KeySet

_EVENT = "http://schemas.openid.net/event/backchannel-logout"
_ALGORITHMS = ["RS256", "ES256", "EdDSA"]


def key_set(jwks: Mapping[str, Any]) -> KeySet:
    """The server's published keys."""
    return KeySet.import_key_set(dict(jwks))  # type: ignore[arg-type]  # JSON is checked inside


def verify(token: str, keys: KeySet, issuer: str, client_id: str) -> Mapping[str, Any]:
    """The claims of a good logout token. Raises `JoseError` or `ValueError`."""
    found = jwt.decode(token, keys, algorithms=_ALGORITHMS)
    if found.header.get("typ") != "logout+jwt":
        raise ValueError("its type is not logout+jwt")
    jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client_id},
        iat={"essential": True},
        exp={"essential": True},
        jti={"essential": True},
    ).validate(found.claims)
    if _EVENT not in found.claims.get("events", {}):
        raise ValueError("it is about another event")
    if "nonce" in found.claims or not {"sub", "sid"} & found.claims.keys():
        raise ValueError("it has a nonce, or names nobody")
    return found.claims
