"""Checks the identity tokens (OIDC Core §3.1.3.7) and logout tokens of a provider."""

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from authlib.oidc.core.util import create_half_hash

from sso import clock
from sso.config.upstream.oidc import OidcProvider
from sso.crypto import client_jwt
from sso.crypto.client_jwt import ClientJwt, InvalidJwt
from sso.upstream import http
from sso.upstream.discovery import Discovered
from sso.upstream.identity import UpstreamRefused

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
SKEW = 60  # seconds
MAX_AGE = 600  # since it was issued, in the same minute as it is fetched
MAX_LENGTH = 16 * 1024
MAX_SUBJECT = 255
LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
LOGOUT_LIFETIME = 600


def verify_id_token(
    provider: OidcProvider,
    discovered: Discovered,
    text: object,
    *,
    nonce: str | None,
    access_token: str | None,
) -> dict[str, Any]:
    """Verify an identity token, and return its claims. `nonce`: `None` at a refresh.

    Raises `UpstreamRefused`.
    """
    jwt = _verified(provider, discovered, text, (None, "jwt"))
    claims = dict(jwt.claims)
    _check_times(claims)
    if nonce is not None and not _same(claims.get("nonce"), nonce):
        raise UpstreamRefused("the nonce of the identity token is another one")
    at_hash = claims.get("at_hash")
    if at_hash is not None and access_token is not None:
        expected = create_half_hash(access_token, jwt.alg)
        if not expected or not _same(at_hash, expected.decode()):
            raise UpstreamRefused("the at_hash of the identity token is another one")
    if "events" in claims:
        raise UpstreamRefused("it is no identity token")
    _check_subject(claims)
    return claims


def verify_logout_token(
    provider: OidcProvider, discovered: Discovered, text: object
) -> dict[str, Any]:
    """Verify a logout token, and return its claims. Raises `UpstreamRefused`.

    That its `jti` is used once is left to the caller.
    """
    jwt = _verified(provider, discovered, text, ("logout+jwt", "jwt", None))
    claims = dict(jwt.claims)
    _check_times(claims)
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT), dict):
        raise UpstreamRefused("its events do not name a logout")
    if "nonce" in claims:
        raise UpstreamRefused("a logout token has no nonce")
    if not _is_text(claims.get("jti")):
        raise UpstreamRefused("it has no jti")
    if "sub" in claims:
        _check_subject(claims)
    if "sid" in claims and not _is_text(claims["sid"]):
        raise UpstreamRefused("its sid is not a short text")
    if "sub" not in claims and "sid" not in claims:
        raise UpstreamRefused("it has neither sub nor sid")
    return claims


def moment(claims: Mapping[str, Any], name: str) -> datetime | None:
    """Return the time in a claim. Raises `UpstreamRefused`."""
    try:
        seconds = client_jwt.moment(claims, name)
    except InvalidJwt as error:
        raise UpstreamRefused(str(error)) from None
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _verified(
    provider: OidcProvider, discovered: Discovered, text: object, types: tuple[str | None, ...]
) -> ClientJwt:
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise UpstreamRefused("there is no token, or it is too long")
    try:
        jwt = client_jwt.read(text)
        keys = discovered.keys_for(jwt.kid, jwt.claims)
        client_jwt.verify(jwt, keys, ALGORITHMS, types, signer="the provider")
    except InvalidJwt as error:
        raise UpstreamRefused(str(error)) from None
    if not provider.accepts_issuer(dict(jwt.claims)):
        raise UpstreamRefused("its iss is that of another provider")
    audience = jwt.claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if provider.client_id not in audiences:
        raise UpstreamRefused("its aud is another client")
    authorized = jwt.claims.get("azp")
    if (len(audiences) > 1 or authorized is not None) and authorized != provider.client_id:
        raise UpstreamRefused("its azp is another client")
    return jwt


def _check_times(claims: Mapping[str, Any]) -> None:
    now = clock.timestamp(clock.now())
    expires, issued, begins = (moment(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None or issued is None:
        raise UpstreamRefused("it has no exp or no iat")
    if expires.timestamp() <= now - SKEW:
        raise UpstreamRefused("it has expired; check the clocks of both servers")
    if max(issued.timestamp(), begins.timestamp() if begins else 0) > now + SKEW:
        raise UpstreamRefused("it is of the future; check the clocks of both servers")
    if issued.timestamp() < now - MAX_AGE:
        raise UpstreamRefused("it is too old; check the clocks of both servers")


def _check_subject(claims: Mapping[str, Any]) -> None:
    if not _is_text(claims.get("sub")):
        raise UpstreamRefused("its sub is not a short text")


def _is_text(value: object) -> bool:
    return http.is_line(value, MAX_SUBJECT)


def _same(value: object, expected: str) -> bool:
    return isinstance(value, str) and hmac.compare_digest(value.encode(), expected.encode())
