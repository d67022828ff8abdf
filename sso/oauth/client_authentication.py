"""Client authentication (RFC 6749 §2.3): one rule for the token, revoke and introspect endpoints.

Authlib accepts two ways at once, decodes Basic credentials with `unquote`, and stumbles over
bytes that are not UTF-8; so the credentials are read here.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import unquote_plus

from authlib.oauth2.rfc6749.errors import InvalidClientError, InvalidRequestError
from sqlalchemy import Connection

from sso import audit
from sso.audit.events import Event
from sso.config.auth_methods import NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.crypto import secrets
from sso.oauth.request import Examined, ProtocolRequest
from sso.ratelimit import limiting, refusals
from sso.store import clients
from sso.store.clients import UNKNOWN_CLIENT, RegisteredClient
from sso.web import headers, parameters

CONFIDENTIAL_METHODS = ["client_secret_basic", "client_secret_post", PRIVATE_KEY_JWT]
METHODS = [*CONFIDENTIAL_METHODS, NO_AUTH_METHOD]
LONGEST_CLIENT_ID = 48  # characters of what is told; redacted whole, and cut after that
_MISSING = (
    "Client authentication is missing: send client_id and client_secret, or a client_assertion."
)
SWAPPED = "client_id and client_secret are swapped"
_NOBODY = secrets.digest("no client has this secret")


QueryClient = Callable[[str], RegisteredClient | None]


class Credentials(NamedTuple):
    """What a client presents, and how."""

    method: str
    client_id: str
    client_secret: str


class ClientAuthenticationFailed(InvalidClientError):
    """`invalid_client`: always 401; the challenge is there when Basic was used (§5.2)."""

    def __init__(self, description: str, basic: bool) -> None:
        super().__init__(description=description, status_code=401)
        self.basic = basic

    def get_headers(self) -> list[tuple[str, str]]:
        headers = [header for header in super().get_headers() if header[0] != "WWW-Authenticate"]
        if self.basic:
            headers.append(("WWW-Authenticate", 'Basic realm="sso", charset="UTF-8"'))
        return headers


def authenticate(
    request: ProtocolRequest,
    query_client: QueryClient,
    endpoint: str,
    methods: Sequence[str] = METHODS,
) -> RegisteredClient:
    """The client that sent the request. Raises `ClientAuthenticationFailed`."""
    if request.examined:
        return _by_assertion(request, request.examined, query_client)
    credentials = read_credentials(request)
    request.claimed_client = credentials.client_id
    client = query_client(credentials.client_id)
    if client:
        headers.allow_origins_of(client)
    if client and client.is_public:
        _check_public(credentials, methods)
        request.client, request.auth_method = client, NO_AUTH_METHOD
        return client
    if credentials.method == NO_AUTH_METHOD:
        # To a stranger, an unknown client and one with a secret are the same.
        raise ClientAuthenticationFailed(_MISSING, basic=False)
    if client is None:
        secrets.matches(credentials.client_secret, _NOBODY)  # an unknown client costs as much
        known = False
    else:
        known = client.check_client_secret(credentials.client_secret)
    basic = credentials.method == "client_secret_basic"
    if client is None or not known:
        failure = ClientAuthenticationFailed(
            "The client is unknown or disabled, or its secret is wrong.", basic
        )
        reason = _reason(request.connection, credentials, client)
        # The one that is in the place of the secret is no secret, and the other one is.
        claimed = credentials.client_secret if reason == SWAPPED else credentials.client_id
        _count_failure(request, credentials.client_id, failure, reason, credentials.method, claimed)
        raise failure
    request.client = client
    if not client.check_endpoint_auth_method(credentials.method, endpoint):
        request.details["reason"] = f"wrong method: {credentials.method}"
        request.facts["method"] = credentials.method
        raise ClientAuthenticationFailed(
            f"The client is registered for {client.token_endpoint_auth_method} alone.", basic
        )
    request.auth_method = credentials.method
    return client


def _check_public(credentials: Credentials, methods: Sequence[str]) -> None:
    """A public client names itself, which proves nothing (RFC 6749 §3.2.1).

    An empty secret is none (§2.3.1): Go's library tries Basic with one first.
    """
    if credentials.client_secret:
        raise ClientAuthenticationFailed(
            "The client is public and has no secret: send its client_id alone, in the body.",
            basic=credentials.method == "client_secret_basic",
        )
    if NO_AUTH_METHOD not in methods:
        raise ClientAuthenticationFailed(
            "The client is public; this endpoint needs client authentication.", basic=False
        )


def _by_assertion(
    request: ProtocolRequest, found: Examined, query_client: QueryClient
) -> RegisteredClient:
    """The client of an assertion that was examined before the transaction began."""
    request.claimed_client, method = found.client_id, PRIVATE_KEY_JWT
    if found.client_id and isinstance(found.failure, ClientAuthenticationFailed):
        request.facts |= found.facts
        _count_failure(request, found.client_id, found.failure, found.reason, method)
    if found.failure:
        request.details["reason"] = found.reason
        raise found.failure
    client = query_client(found.client_id)
    if client is None or found.client is None or client.updated_at != found.client.updated_at:
        raise ClientAuthenticationFailed("The client has just been changed; try again.", False)
    request.client, request.auth_method = client, method
    return client


def _count_failure(
    request: ProtocolRequest,
    client_id: str,
    failure: ClientAuthenticationFailed,
    reason: str | None,
    method: str,
    claimed: str | None = None,
) -> None:
    """Tell and count it. Raises `TooManyAttempts`.

    The right secret is let in before anything is asked here: it is random, so no pause protects
    it, and a pause would let a stranger who knows a client's id and address shut the client out.
    """
    request.is_reported = True
    claimed = claimed or client_id
    attempt, seconds = limiting.ask(limiting.CLIENT_AUTHENTICATION, client_id)
    if seconds:
        raise limiting.TooManyAttempts(seconds)
    refusals.note(
        Event.CLIENT_AUTHENTICATION_FAILED,
        budget=None,  # limited just above
        client=audit.clean(claimed, LONGEST_CLIENT_ID),
        error=failure.error,
        description=failure.get_error_description(),
        reason=reason,
        facts={"method": method, **request.facts},
    )
    request.claimed_client = claimed
    attempt.failed()


def _reason(
    connection: Connection, credentials: Credentials, client: RegisteredClient | None
) -> str | None:
    """Which check failed: for the log and the audit trail, never for the client."""
    # All are asked for every client, so that none is slow.
    client_id, secret = credentials.client_id, credentials.client_secret
    unknown = clients.why_not_enabled(connection, client_id)
    swapped = clients.why_not_enabled(connection, secret) != UNKNOWN_CLIENT
    stored = client.secret_digest if client else ""
    wrapped = secrets.matches(secret.strip(" \"'"), stored)
    previous = secrets.matches(secret, (client and client.previous_secret_digest) or "")
    if client is None:
        return SWAPPED if swapped else unknown
    if not client.has_secret:
        return f"wrong method: {credentials.method}"
    if wrapped:
        return "the right secret, in quotes or between spaces"
    return "a previous secret, which has expired" if previous else "wrong secret"


def read_credentials(request: ProtocolRequest) -> Credentials:
    """Credentials from the header or the body, or a name alone. Raises when there are two."""
    header = request.headers.get("Authorization", "")
    scheme, _, rest = header.partition(" ")
    client_id, client_secret = request.form.get("client_id"), request.form.get("client_secret")
    if scheme.lower() == "basic":
        request.used_basic = True
        basic = _decode(rest.strip())
        if client_secret is not None:
            raise InvalidRequestError(
                "The client authenticates in two ways at once; use one (RFC 6749 section 2.3)."
            )
        if client_id is not None and client_id != basic.client_id:
            raise InvalidRequestError("The header and the body name two different clients.")
        return basic
    if header:
        raise ClientAuthenticationFailed("The Authorization header is not Basic.", basic=True)
    if not client_id:
        raise ClientAuthenticationFailed(_MISSING, basic=False)
    method = "client_secret_post" if client_secret else NO_AUTH_METHOD
    return Credentials(method, client_id, client_secret or "")


def _decode(encoded: str) -> Credentials:
    # §2.3.1: both parts are form-encoded before they are joined.
    try:
        text = base64.b64decode(encoded, validate=True).decode("utf-8")
        client_id, separator, secret = text.partition(":")
        pair = [unquote_plus(part, errors="strict") for part in (client_id, secret)]
        if separator and not any(parameters.fault_of("", part) for part in pair):
            return Credentials("client_secret_basic", *pair)
    except (binascii.Error, ValueError):
        pass
    raise ClientAuthenticationFailed("The Basic credentials can't be decoded.", basic=True)
