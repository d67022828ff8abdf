"""Signed request objects (RFC 9101): by value, at the authorization endpoint and when pushed.

A client that is registered with an algorithm has to sign all its requests; then the parameters
inside count, and those outside do not. FAPI 2.0 Message Signing §5.3.1 has the rules. An object is
verified before the transaction of its request begins, as the keys may have to be read from a URL.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from authlib.oauth2.rfc6749.errors import OAuth2Error
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload

from sso import clock, context, database
from sso.crypto import client_jwt
from sso.crypto.client_jwt import ClientJwt, InvalidJwt
from sso.flow.request import NOT_SIGNED, PARAMETERS
from sso.oauth import key_sets
from sso.oauth.key_sets import Keys, KeySetUnavailable
from sso.oauth.request import ProtocolRequest
from sso.store import clients
from sso.store.clients import RegisteredClient
from sso.web.parameters import is_text

INVALID = "invalid_request_object"  # RFC 9101 §7
# The first should be sent (FAPI 2.0 Message Signing §5.3.2); many clients send none.
_TYPES = ("oauth-authz-req+jwt", "jwt", None)
_OUTSIDE = ("request", "request_uri")  # may not be within


@dataclass(frozen=True)
class Signed:
    """What a request object says, once it is verified; or why it is not."""

    client: RegisteredClient | None = None
    parameters: Mapping[str, str] | None = None
    fault: str = ""
    reason: str | None = None  # for the log and the audit trail
    error: str = INVALID


def examine(values: Mapping[str, str]) -> Signed | None:
    """Verify the request object among these parameters, for `apply`. No transaction may be open.

    `None`: there is none, or its client may not send any.
    """
    if "request" not in values:
        return None
    try:
        jwt = client_jwt.read(values["request"])
        client = _find(jwt.claims.get("client_id"), values.get("client_id"))
        if client is None or client.request_object_signing_alg is None:
            return None
        return _verified(jwt, client, client.request_object_signing_alg)
    except InvalidJwt as error:
        return Signed(fault=f"The request object is refused: {error}.")


def _verified(jwt: ClientJwt, client: RegisteredClient, alg: str) -> Signed:
    try:
        keys = key_sets.of(client, jwt.kid)
    except KeySetUnavailable as error:
        kind = "temporarily_unavailable" if error.is_passing else INVALID
        fault = key_sets.described(error, client)
        return Signed(fault=fault, error=kind, reason=f"key set: {error}")
    _verify(jwt, keys, client, alg)
    return Signed(client, _parameters(jwt.claims))


def apply(request: ProtocolRequest, signed: Signed | None) -> None:
    """Put the parameters of the request object in the place of those outside.

    Raises `OAuth2Error`, also if the client has to send one.
    """
    client: RegisteredClient | None = request.client
    if client is None or client.request_object_signing_alg is None:
        return
    if signed and signed.parameters is not None and _is_of(signed.client, client):
        request.payload = BasicOAuth2Payload({**signed.parameters})
        return
    signed = signed or Signed()
    fault, error = NOT_SIGNED, "invalid_request"
    if "request" in request.payload.data:
        fault = signed.fault or "The request object is of another client."
        error = signed.error
    if signed.reason:
        request.details["reason"] = signed.reason
    redirect_uri = request.payload.redirect_uri
    is_proven = redirect_uri and client.check_redirect_uri(redirect_uri)
    raise OAuth2Error(fault, error=error, redirect_uri=redirect_uri if is_proven else None)


def _is_of(signer: RegisteredClient | None, client: RegisteredClient) -> bool:
    """Whether it is the same client, and has not been changed since."""
    if signer is None or signer.client_id != client.client_id:
        return False
    return signer.updated_at == client.updated_at


def _find(inside: Any, outside: str | None) -> RegisteredClient | None:
    """The client that the object names, which has to be the one that is named outside (§5)."""
    if not isinstance(inside, str) or not inside.isascii() or not inside.isprintable():
        inside = outside or ""
    elif outside not in (None, inside):
        raise InvalidJwt("its client_id is not the one outside")
    with database.connection() as connection:
        return clients.find_enabled(connection, inside)


def _verify(jwt: ClientJwt, keys: Keys, client: RegisteredClient, alg: str) -> None:
    claims, now = jwt.claims, clock.now().timestamp()
    client_jwt.verify(jwt, keys, [alg], _TYPES)
    if claims.get("client_id") != client.client_id or claims.get("iss") != client.client_id:
        raise InvalidJwt("its client_id and iss are not the client_id")
    if claims.get("sub") == client.client_id:
        raise InvalidJwt("it has a sub, which only client assertions have")  # RFC 9101 §10.8
    audience, issuer = claims.get("aud"), context.settings().issuer
    if audience != issuer and not (isinstance(audience, list) and issuer in audience):
        raise InvalidJwt(f"its aud has to be the issuer {issuer}, or a list with it")
    expires = client_jwt.expiry(claims, now)
    not_before = client_jwt.moment(claims, "nbf")
    if not_before is None:
        if client.is_fapi2:
            raise InvalidJwt("it has no nbf")
    elif not_before < now - client_jwt.MAX_LIFETIME:
        raise InvalidJwt("its nbf is more than an hour ago")
    elif expires > not_before + client_jwt.MAX_LIFETIME:
        raise InvalidJwt("its exp is more than an hour after its nbf")


def _parameters(claims: Mapping[str, Any]) -> dict[str, str]:
    if any(name in claims for name in _OUTSIDE):
        raise InvalidJwt("it has request or request_uri within")
    found = {name: _text(name, claims[name]) for name in PARAMETERS if name in claims}
    return {name: value for name, value in found.items() if value}


def _text(name: str, value: Any) -> str:
    """A parameter as it would be outside; numbers and objects are JSON there (RFC 9101 §4)."""
    if name == "claims" and isinstance(value, dict):
        value = json.dumps(value)
    elif name == "max_age" and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and is_text(value):
        return value
    raise InvalidJwt(f"its {name} is not a text")
