"""Pushed authorization requests (RFC 9126): a client's backend sends the parameters beforehand.

A request URI starts one authorization: it is used up by the answer, not by the page that a browser
loads before (FAPI 2.0 Security Profile §5.3.2.2).
"""

import json
from collections.abc import Mapping
from typing import Any

from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from sqlalchemy import Connection

from sso import clock
from sso.crypto import secrets
from sso.flow.request import PARAMETERS
from sso.oauth import client_authentication, dpop, request_objects
from sso.oauth.request import ProtocolRequest
from sso.oauth.request_objects import Signed
from sso.oauth.server import AuthorizationServer
from sso.ratelimit import limiting
from sso.store import clients, redemption

PREFIX = "urn:ietf:params:oauth:request_uri:"
MAX_LENGTH = 10_000  # characters of all parameters together
_STORED = tuple(name for name in PARAMETERS if name not in ("request", "request_uri"))


class InvalidRequestUri(OAuth2Error):
    """The request URI is not usable (RFC 9101 §7). `reason`: see `store.pushed_requests`."""

    error = "invalid_request_uri"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The 'request_uri' {_FAULTS[reason]}; push the request again.")


_FAULTS = {
    "unknown": "is unknown, or it expired and was deleted",
    "issued to another client": "was issued to another client",
    "used before": "was used before, and works once",
    "waited too long": "has expired, because the user took too long",
    "expired": "has expired",
}


def push(
    server: AuthorizationServer, request: ProtocolRequest, signed: Signed | None
) -> dict[str, Any]:
    """Authenticate the client, validate as the authorization endpoint does, and store (§2.1).

    `signed`: of its request object. Gives the members of the answer (§2.2). Raises `OAuth2Error`
    and `TooManyAttempts`.
    """
    connection, data = request.connection, request.payload.data
    client = client_authentication.authenticate(
        request, lambda client_id: clients.find_enabled(connection, client_id), "par"
    )
    if "request_uri" in data:
        request.facts["parameter"] = "request_uri"
        raise InvalidRequestError("The parameter 'request_uri' cannot be pushed; leave it out.")
    request_objects.apply(request, signed)
    data = request.payload.data
    data["client_id"] = client.client_id  # with Basic, the body need not name it
    request.is_pushed = True
    dpop.read(request, "pushed_authorization_request", is_needed=False)
    if request.dpop_jkt and data.setdefault("dpop_jkt", request.dpop_jkt) != request.dpop_jkt:
        raise dpop.RefusedProof("The 'dpop_jkt' is not that of the DPoP proof's key.", "dpop_jkt")
    server.get_consent_grant(request)
    parameters = {name: data[name] for name in _STORED if name in data}
    if len(json.dumps(parameters)) > MAX_LENGTH:
        fault = f"The request is longer than {MAX_LENGTH} characters."
        raise InvalidRequestError(fault, status_code=413)
    # Each is a row until it is purged. The server of a confidential client sends those of all its
    # users. Anyone can name a public one, whose users must not wait because of a stranger.
    rule = limiting.PUSHED_BY_ANYONE if client.is_public else limiting.PUSHED_REQUEST
    limiting.spend(rule, client.client_id)
    dpop.use(connection, request.proof)
    return {
        "request_uri": keep(connection, client.client_id, parameters),
        "expires_in": int(redemption.PUSHED_LIFETIME.total_seconds()),
    }


def keep(connection: Connection, client_id: str, parameters: Mapping[str, str]) -> str:
    """Store a client's request. Gives its request URI."""
    secret, text = secrets.make_secret(secrets.REQUEST_URI), json.dumps(parameters)
    redemption.add_pushed(connection, secrets.digest(secret), client_id, text, clock.now())
    return PREFIX + secret


def is_pushed(brought: dict[str, str]) -> bool:
    """Whether an authorization request has a request URI of this server."""
    return brought.get("request_uri", "").startswith(PREFIX)


def resolve(request: ProtocolRequest, *, is_waiting: bool) -> None:
    """Put the pushed parameters in the place of their request URI; any others are ignored (§4).

    `is_waiting`: the request returns from one of our pages. Raises `InvalidRequestUri`.
    """
    brought = request.payload.data
    if not is_pushed(brought):
        return
    found = redemption.find_pushed(request.connection, _digest(brought))
    client_id = brought.get("client_id", "")
    reason = found.refusal(client_id, clock.now(), is_waiting=is_waiting) if found else "unknown"
    if found is None or reason:
        request.details["reason"] = reason
        raise InvalidRequestUri(reason or "unknown")
    request.payload = BasicOAuth2Payload({**json.loads(found.parameters), "client_id": client_id})
    request.is_pushed, request.is_kept = True, found.waits_until is not None


def keep_for_user(request: ProtocolRequest, brought: dict[str, str]) -> None:
    """Keep a pushed request beyond its minute: the user is at a page of ours."""
    if is_pushed(brought) and not request.is_kept:
        redemption.let_pushed_wait(request.connection, _digest(brought), clock.now())


def use(connection: Connection, brought: dict[str, str], redirect_uri: str) -> bool:
    """Use up the request URI, if there is one; false if another answer was quicker.

    Of what was pushed, only the way back to the client is kept, for `redirect_uri_of`.
    """
    if not is_pushed(brought):
        return True
    left = json.dumps({"redirect_uri": redirect_uri})
    return redemption.use_pushed(connection, _digest(brought), clock.now(), left)


def redirect_uri_of(connection: Connection, brought: dict[str, str]) -> str:
    """The redirect URI of a pushed request, even one that cannot be used; empty if it is gone."""
    found = redemption.find_pushed(connection, _digest(brought)) if is_pushed(brought) else None
    return str(json.loads(found.parameters).get("redirect_uri", "")) if found else ""


def _digest(brought: dict[str, str]) -> str:
    return secrets.digest(brought["request_uri"].removeprefix(PREFIX))
