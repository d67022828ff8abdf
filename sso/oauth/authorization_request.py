"""Authorization requests that are signed or pushed: their parameters replace those in the URL.

A request URI of a pushed request (RFC 9126) starts one authorization: it is used up by the answer,
not by the page that a browser loads before (FAPI 2.0 Security Profile §5.3.2.2).

A client that is registered with an algorithm has to sign all its requests (RFC 9101); then the
parameters inside count, and those outside do not. FAPI 2.0 Message Signing §5.3.1 has the rules. A
request object is verified before the transaction of its request begins, as the keys may have to be
read from a URL.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from sqlalchemy import Connection

from sso import clock, context, database
from sso.crypto import client_jwt, secrets
from sso.crypto.client_jwt import ClientJwt, InvalidJwt, JwtFault
from sso.flow.refusals import Cause, KeyFault, Reason, because, describe
from sso.flow.request import PARAMETERS, REPEATABLE
from sso.i18n.message import Message
from sso.oauth import client_authentication, dpop, key_sets
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.key_sets import Keys, KeySetUnavailable
from sso.oauth.server import AuthorizationServer
from sso.ratelimit import limiting
from sso.store import clients, redemption
from sso.store.approvals import PushedUse
from sso.store.clients import RegisteredClient
from sso.store.redemption import Pushed
from sso.web.parameters import is_text

INVALID_REQUEST_OBJECT = "invalid_request_object"  # RFC 9101 §7
# The first should be sent (FAPI 2.0 Message Signing §5.3.2); many clients send none.
_TYPES = ("oauth-authz-req+jwt", "jwt", None)
_OUTSIDE = ("request", "request_uri")  # may not be within


@dataclass(frozen=True)
class SignedRequest:
    """What a request object says, once it is verified; or why it is not."""

    client: RegisteredClient | None = None
    parameters: Mapping[str, str] | None = None
    fault: str = ""
    reason: Message | None = None  # for the log and the audit trail
    jwt_fault: JwtFault | None = None  # for `flask explain`
    error: str = INVALID_REQUEST_OBJECT


def examine_request_object(values: Mapping[str, str]) -> SignedRequest | None:
    """Verify the request object among these parameters, for `apply_request_object`. No transaction
    may be open.

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
        return SignedRequest(
            fault=f"The request object is refused: {error}.", jwt_fault=error.fault
        )


def _verified(jwt: ClientJwt, client: RegisteredClient, alg: str) -> SignedRequest:
    try:
        keys = key_sets.of(client, jwt.kid)
    except KeySetUnavailable as error:
        kind = "temporarily_unavailable" if error.is_passing else INVALID_REQUEST_OBJECT
        fault = key_sets.described(error, client)
        reason = because(Reason.KEY_SET, fault=str(error))
        return SignedRequest(fault=fault, error=kind, reason=reason)
    _verify(jwt, keys, client, alg)
    return SignedRequest(client, _parameters(jwt.claims))


def apply_request_object(request: ProtocolRequest, signed: SignedRequest | None) -> None:
    """Put the parameters of the request object in the place of those outside.

    Raises `OAuth2Error`, also if the client has to send one.
    """
    client: RegisteredClient | None = request.client
    if client is None or client.request_object_signing_alg is None:
        return
    if signed and signed.parameters is not None and _is_of(signed.client, client):
        request.payload = BasicOAuth2Payload({**signed.parameters})
        return
    signed = signed or SignedRequest()
    fault: str = describe(Cause.NOT_SIGNED)
    error = "invalid_request"
    if "request" in request.payload.data:
        fault = signed.fault or "The request object is of another client."
        error, request.facts["jwt"] = signed.error, signed.jwt_fault
    if signed.reason:
        request.details["reason"] = signed.reason
    redirect_uri = request.payload.redirect_uri
    is_proven = redirect_uri and client.check_redirect_uri(redirect_uri)
    raise OAuth2Error(fault, error=error, redirect_uri=redirect_uri if is_proven else None)


def _is_of(signer: RegisteredClient | None, client: RegisteredClient) -> bool:
    """Return whether the signer is this client, unchanged since its keys were read."""
    if signer is None or signer.client_id != client.client_id:
        return False
    return signer.updated_at == client.updated_at


def _find(inside: Any, outside: str | None) -> RegisteredClient | None:
    """Return the client in the object, which has to be the one in the query (§5)."""
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
    audience, issuer = claims.get("aud"), context.settings().issuer_of(client)
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
    parameters = {name: _text(name, claims[name]) for name in PARAMETERS if name in claims}
    return {name: value for name, value in parameters.items() if value}


def _text(name: str, value: Any) -> str:
    """Return a parameter as in a query; numbers and objects are JSON there (RFC 9101 §4)."""
    if name in REPEATABLE and isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            value = " ".join(value)
    elif name == "claims" and isinstance(value, dict):
        value = json.dumps(value)
    elif name == "max_age" and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and is_text(value):
        return value
    raise InvalidJwt(f"its {name} is not a text")


PREFIX = "urn:ietf:params:oauth:request_uri:"
MAX_LENGTH = 10_000  # characters of all parameters together
_STORED = tuple(name for name in PARAMETERS if name not in ("request", "request_uri"))


class InvalidRequestUri(OAuth2Error):
    """The request URI is not usable (RFC 9101 §7). `reason`: see `Pushed.refusal`."""

    error = "invalid_request_uri"

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"The 'request_uri' {_FAULTS[reason]}; push the request again.")


_FAULTS = {
    Reason.UNKNOWN: "is unknown, or it expired and was deleted",
    Reason.ISSUED_TO_ANOTHER: "was issued to another client",
    Reason.USED_BEFORE: "was used before, and works once",
    Reason.WAITED_TOO_LONG: "has expired, because the user took too long",
    Reason.EXPIRED: "has expired",
}


def push(
    server: AuthorizationServer, request: ProtocolRequest, signed: SignedRequest | None
) -> dict[str, Any]:
    """Authenticate the client, validate as the authorization endpoint does, and store (§2.1).

    `signed`: of its request object. Gives the members of the answer (§2.2). Raises `OAuth2Error`
    and `TooManyAttempts`.
    """
    connection, data = request.connection, request.payload.data
    client = client_authentication.authenticate(
        request, partial(client_authentication.find_with_document, connection), "par"
    )
    if "request_uri" in data:
        request.facts["parameter"] = "request_uri"
        raise InvalidRequestError("The parameter 'request_uri' cannot be pushed; leave it out.")
    apply_request_object(request, signed)
    data = request.payload.data
    data["client_id"] = client.client_id  # with Basic, the body need not name it
    request.is_pushed = True
    dpop.read(request, "pushed_authorization_request", is_needed=False)
    if request.dpop_jkt and data.setdefault("dpop_jkt", request.dpop_jkt) != request.dpop_jkt:
        fault = "The 'dpop_jkt' is not that of the DPoP proof's key."
        raise dpop.RefusedProof(fault, KeyFault.DPOP_JKT)
    server.get_consent_grant(request)
    parameters = {name: data[name] for name in _STORED if name in data}
    if len(json.dumps(parameters)) > MAX_LENGTH:
        fault = f"The request is longer than {MAX_LENGTH} characters."
        raise InvalidRequestError(fault, status_code=413)
    # Each is a row until it is purged. The server of a confidential client sends those of all its
    # users. Anyone can name a public one, whose users must not wait because of a stranger; and
    # anyone can be an agent.
    is_anyone = client.is_public or client.is_agent
    rule = limiting.PUSHED_BY_ANYONE if is_anyone else limiting.PUSHED_REQUEST
    limiting.spend(rule, client.client_id)
    dpop.use(connection, request.proof)
    return {
        "request_uri": keep_pushed(connection, client.client_id, parameters),
        "expires_in": int(redemption.PUSHED_LIFETIME.total_seconds()),
    }


def keep_pushed(connection: Connection, client_id: str, parameters: Mapping[str, str]) -> str:
    """Store a client's request. Gives its request URI."""
    secret, text = secrets.make_secret(secrets.REQUEST_URI), json.dumps(parameters)
    redemption.add_pushed(connection, secrets.digest(secret), client_id, text, clock.now())
    return PREFIX + secret


def is_pushed(brought: dict[str, str]) -> bool:
    """Return whether an authorization request has a request URI of this server."""
    return brought.get("request_uri", "").startswith(PREFIX)


def resolve_pushed(request: ProtocolRequest, pushed: Pushed | None, *, is_waiting: bool) -> None:
    """Put the pushed parameters in the place of their request URI; any others are ignored (§4).

    `pushed`: the request with the digest of the URI. `is_waiting`: the request returns from one of
    our pages. Raises `InvalidRequestUri`.
    """
    brought = request.payload.data
    if not is_pushed(brought):
        return
    client_id, reason = brought.get("client_id", ""), Reason.UNKNOWN
    refusal = pushed.refusal(client_id, clock.now(), is_waiting=is_waiting) if pushed else reason
    if pushed is None or refusal:
        reason = refusal or reason
        request.details["reason"] = because(reason)
        raise InvalidRequestUri(reason)
    request.payload = BasicOAuth2Payload({**json.loads(pushed.parameters), "client_id": client_id})
    request.is_pushed, request.is_kept = True, pushed.waits_until is not None
    # Only the way back to the client is kept, for `redirect_uri_of`.
    remaining = json.dumps({"redirect_uri": request.payload.redirect_uri})
    request.pushed_use = PushedUse(digest_of_pushed(brought), remaining)


def keep_for_user(request: ProtocolRequest, brought: dict[str, str]) -> None:
    """Keep a pushed request beyond its minute: the user is at a page of ours."""
    if is_pushed(brought) and not request.is_kept:
        redemption.let_pushed_wait(request.connection, digest_of_pushed(brought), clock.now())


def use_pushed(request: ProtocolRequest) -> bool:
    """Use up the request URI, if there is one; false if another answer was quicker."""
    use = request.pushed_use
    if use is None or request.is_used_up:
        return True
    return redemption.use_pushed(request.connection, use.digest, clock.now(), use.left)


def redirect_uri_of(connection: Connection, brought: dict[str, str]) -> str:
    """Return the redirect URI of a pushed request, usable or not; empty if it is deleted."""
    pushed = (
        redemption.find_pushed(connection, digest_of_pushed(brought))
        if is_pushed(brought)
        else None
    )
    return str(json.loads(pushed.parameters).get("redirect_uri", "")) if pushed else ""


def digest_of_pushed(brought: dict[str, str]) -> str:
    """Return the digest of a request URI of this server."""
    return secrets.digest(brought["request_uri"].removeprefix(PREFIX))
