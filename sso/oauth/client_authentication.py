"""Client authentication (RFC 6749 §2.3): one rule for the token, revoke and introspect endpoints.

Authlib accepts two ways at once, decodes Basic credentials with `unquote`, and stumbles over bytes
that are not UTF-8; so the credentials are read here.

A signed JWT (private_key_jwt, RFC 7523 §3, OIDC Core §9) is verified before the transaction of its
request begins: keys may have to be read from a URL, and an assertion counts as used even if the
request fails. Authlib's verification takes other algorithms than FAPI, and neither bounds an
assertion's life nor compares it with `client_id`.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import unquote_plus

from authlib.oauth2.rfc6749.errors import InvalidClientError, InvalidRequestError, OAuth2Error
from authlib.oauth2.rfc7523.client import ASSERTION_TYPE
from sqlalchemy import Connection

from sso import audit, clock, context, database
from sso.audit.events import Event
from sso.config.auth_methods import NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.crypto import client_jwt, secrets
from sso.crypto.client_jwt import ClientJwt, InvalidJwt, JwtFault
from sso.flow.refusals import Cause, Reason, because, describe
from sso.i18n.message import Message
from sso.models.clients import MAX_CLIENT_ID
from sso.oauth import (
    client_addresses,
    document_clients,
    foreign_secrets,
    key_sets,
    workload_identity,
)
from sso.oauth.authlib_request import Examined, ProtocolRequest
from sso.oauth.key_sets import KeySetUnavailable
from sso.ratelimit import limiting, refusals
from sso.services import transaction
from sso.store import apis, clients
from sso.store.clients import RegisteredClient
from sso.store.redemption import SingleUse, TooManyUsed, use_once
from sso.web import headers, parameters

CONFIDENTIAL_METHODS = ["client_secret_basic", "client_secret_post", PRIVATE_KEY_JWT]
METHODS = [*CONFIDENTIAL_METHODS, NO_AUTH_METHOD]
LONGEST_CLIENT_ID = MAX_CLIENT_ID  # of what is told; redacted whole, and cut after that
CHANGED = "The client has just been changed; try again."
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
    """Return the client that sent the request. Raises `OAuth2Error`.

    A client is refused at the addresses of another issuer than its own.
    """
    client = _authenticated(request, query_client, endpoint, methods)
    client_addresses.check_address(client)
    return client


def _authenticated(
    request: ProtocolRequest, query_client: QueryClient, endpoint: str, methods: Sequence[str]
) -> RegisteredClient:
    """Raises `ClientAuthenticationFailed` and `InvalidRequestError`."""
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
    if client is None and (error := document_clients.error_of(credentials.client_id)):
        description, request.details["reason"] = document_clients.described(error, request.facts)
        raise ClientAuthenticationFailed(description, request.used_basic)
    if credentials.method == NO_AUTH_METHOD:
        # To a stranger, an unknown client and one with a secret are the same.
        raise ClientAuthenticationFailed(describe(Cause.MISSING_CLIENT_AUTHENTICATION), basic=False)
    if client is None:
        secrets.matches(credentials.client_secret, _NOBODY)  # an unknown client costs as much
        is_right = False
    else:
        secret = credentials.client_secret
        is_right = client.check_client_secret(secret) or foreign_secrets.is_right(
            request, client, secret
        )
    basic = credentials.method == "client_secret_basic"
    if client is None or not is_right:
        failure = ClientAuthenticationFailed(
            "The client is unknown or disabled, or its secret is wrong.", basic
        )
        reason = _reason(request.connection, credentials, client)
        # The one that is in the place of the secret is no secret, and the other one is.
        is_swapped = reason == Reason.SWAPPED
        claimed = credentials.client_secret if is_swapped else credentials.client_id
        text = because(reason, method=credentials.method) if reason else None
        _count_failure(request, credentials.client_id, failure, text, credentials.method, claimed)
        raise failure
    request.client = client
    if not client.check_endpoint_auth_method(credentials.method, endpoint):
        request.details["reason"] = because(Reason.WRONG_METHOD, method=credentials.method)
        request.facts["method"] = credentials.method
        raise ClientAuthenticationFailed(
            f"The client is registered for {client.token_endpoint_auth_method} alone.", basic
        )
    request.auth_method = credentials.method
    return client


def find_with_document(connection: Connection, client_id: str) -> RegisteredClient | None:
    """Return the enabled client, as its document describes it if the request had it examined."""
    stored = clients.find_enabled(connection, client_id)
    return document_clients.current(connection, client_id, stored)


def claimed_client_id(request: ProtocolRequest) -> str:
    """Return the client ID that a request names; empty if it cannot be read."""
    with suppress(OAuth2Error):
        return read_credentials(request).client_id
    return request.form.get("client_id", "")


def _check_public(credentials: Credentials, methods: Sequence[str]) -> None:
    """Check that a public client only names itself, which proves nothing (RFC 6749 §3.2.1).

    An empty secret counts as none (§2.3.1): Go's library tries Basic with one first.
    """
    if credentials.client_secret:
        raise ClientAuthenticationFailed(
            "The client is public and has no secret: send its client_id alone, in the body.",
            basic=credentials.method == "client_secret_basic",
        )
    if NO_AUTH_METHOD not in methods:
        raise ClientAuthenticationFailed(describe(Cause.PUBLIC_CLIENT), basic=False)


def _by_assertion(
    request: ProtocolRequest, examined: Examined, query_client: QueryClient
) -> RegisteredClient:
    """Return the client of an assertion that was examined before the transaction began."""
    request.claimed_client, method = examined.client_id, PRIVATE_KEY_JWT
    if examined.client_id and isinstance(examined.failure, ClientAuthenticationFailed):
        request.facts |= examined.facts
        _count_failure(request, examined.client_id, examined.failure, examined.reason, method)
    if examined.failure:
        request.details["reason"] = examined.reason
        raise examined.failure
    client = query_client(examined.client_id)
    if client is None or examined.client is None or client.updated_at != examined.client.updated_at:
        raise ClientAuthenticationFailed(CHANGED, False)
    request.client, request.auth_method = client, method
    return client


def _count_failure(
    request: ProtocolRequest,
    client_id: str,
    failure: ClientAuthenticationFailed,
    reason: Message | None,
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
    refusals.record(
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
) -> Reason | None:
    """Return which check failed: for the log and the audit trail, never for the client."""
    # All are asked for every client, so that none is slow.
    client_id, secret = credentials.client_id, credentials.client_secret
    unknown = clients.why_not_enabled(connection, client_id)
    swapped = clients.why_not_enabled(connection, secret) != Reason.UNKNOWN_CLIENT
    stored = client.secret_digest if client else ""
    wrapped = secrets.matches(secret.strip(" \"'"), stored)
    previous = secrets.matches(secret, (client and client.previous_secret_digest) or "")
    if client is None:
        if apis.is_api_id(client_id) and (
            reason := apis.why_refused(connection, client_id, secret)
        ):
            return reason
        return Reason.SWAPPED if swapped else unknown
    if not client.has_secret:
        return Reason.WRONG_METHOD
    if wrapped and not client.has_secret_ended:
        return Reason.QUOTED_SECRET
    if client.has_secret_ended and secrets.matches(secret, stored):
        return Reason.ENDED_SECRET
    return Reason.EXPIRED_SECRET if previous else Reason.WRONG_SECRET


def read_credentials(request: ProtocolRequest) -> Credentials:
    """Credentials from the header or the body, or a name alone. Raises when there are two."""
    header = request.headers.get("Authorization", "")
    scheme, _, rest = header.partition(" ")
    client_id, client_secret = request.form.get("client_id"), request.form.get("client_secret")
    if scheme.lower() == "basic":
        request.used_basic = True
        basic = _decode(rest.strip())
        if client_secret is not None:
            raise InvalidRequestError(describe(Cause.TWO_AUTHENTICATIONS))
        if client_id is not None and client_id != basic.client_id:
            raise InvalidRequestError(describe(Cause.TWO_CLIENTS))
        return basic
    if header:
        raise ClientAuthenticationFailed("The Authorization header is not Basic.", basic=True)
    if not client_id:
        raise ClientAuthenticationFailed(describe(Cause.MISSING_CLIENT_AUTHENTICATION), basic=False)
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


MAX_FACT = 200  # characters
MAX_ASSERTION_AGE = 300  # seconds since its `iat`
# RFC 7523 leaves the type open; its successor wants the first.
_TYPES = ("client-authentication+jwt", "jwt", None)
_UNPROVEN = (
    "The client is unknown or disabled, or the assertion is not signed with one of its keys."
)


def examine_assertion(request: ProtocolRequest, endpoint: str) -> None:
    """Verify the assertion of a request, if it has one; `client_authentication` uses the result.

    `endpoint`: its name in `ENDPOINTS`. No transaction may be open.
    """
    form = request.form
    if "client_assertion" not in form and "client_assertion_type" not in form:
        return
    request.examined = examined = Examined(form.get("client_id", ""))
    try:
        examined.client = _proven(request, endpoint, examined)
    except InvalidJwt as error:
        examined.failure = ClientAuthenticationFailed(
            f"The client assertion is refused: {error.public}.", basic=False
        )
        examined.reason = examined.reason or because(Reason.ASSERTION, fault=str(error))
        examined.facts["jwt"] = error.fault
    except OAuth2Error as error:
        examined.failure = error


def _proven(request: ProtocolRequest, endpoint: str, examined: Examined) -> RegisteredClient:
    form = request.form
    if "client_secret" in form or "Authorization" in request.headers:
        raise InvalidRequestError(describe(Cause.TWO_AUTHENTICATIONS))
    if form.get("client_assertion_type") != ASSERTION_TYPE:
        raise InvalidJwt(f"client_assertion_type is not {ASSERTION_TYPE}")
    jwt = client_jwt.read(form.get("client_assertion", ""))
    trusting = _trusting(jwt, examined)
    if trusting:
        keys = partial(_keys, trusting, jwt, examined)
        _use_once(*workload_identity.verify(trusting, jwt, keys))
        return trusting
    subject = jwt.claims.get("sub")
    if not _is_client_id(subject) or jwt.claims.get("iss") != subject:
        raise InvalidJwt("its iss and sub are not the client_id")
    if examined.client_id not in ("", subject):
        raise InvalidJwt("its sub is not the client_id of the body")
    examined.client_id = subject
    examined.facts = _facts(jwt)
    client = _find(subject, examined)
    if client.trust_issuer:
        raise InvalidJwt("its iss is not the issuer that the client trusts", JwtFault.ISSUER)
    fapi, registered = client.is_fapi2, client.token_endpoint_auth_signing_alg
    algorithms = client_jwt.FAPI_ALGORITHMS if fapi else client_jwt.ALGORITHMS
    client_jwt.verify(jwt, _keys(client, jwt, examined), [registered] if registered else algorithms,
                      _TYPES)  # fmt: skip
    _check_audience(client, jwt.claims.get("aud"), endpoint)
    _use(jwt.claims, client)
    return client


def _trusting(jwt: ClientJwt, examined: Examined) -> RegisteredClient | None:
    """Return the client of the body if another issuer is to speak for it."""
    if not examined.client_id or jwt.claims.get("iss") == examined.client_id:
        return None
    with database.connection() as connection:
        client = clients.find_enabled(connection, examined.client_id)
    if client is None or not client.trust_issuer:
        return None
    examined.facts = _facts(jwt, "iss", "sub")
    return client


def _facts(jwt: ClientJwt, *more: str) -> dict[str, object]:
    """Return the unverified fields of an assertion; none is secret."""
    values = {"kid": jwt.header.get("kid"), "alg": jwt.alg, "aud": jwt.claims.get("aud")}
    values |= {name: jwt.claims.get(name) for name in more}
    facts: dict[str, object] = {
        name: audit.clean(value, MAX_FACT)
        for name, value in values.items()
        if isinstance(value, str)
    }
    issued = jwt.claims.get("iat")
    if isinstance(issued, int) and 0 < issued < client_jwt.LATEST:
        facts["ahead"] = issued - int(clock.now().timestamp())
    return facts


def _is_client_id(text: Any) -> TypeGuard[str]:
    """Return whether a database can look it up: without NUL and lone surrogates."""
    return isinstance(text, str) and text.isascii() and text.isprintable()


def _find(client_id: str, examined: Examined) -> RegisteredClient:
    with database.connection() as connection:
        client = find_with_document(connection, client_id)
        reason = None if client else clients.why_not_enabled(connection, client_id)
    if client is not None and client.check_endpoint_auth_method(PRIVATE_KEY_JWT, ""):
        return client
    if client is None and (error := document_clients.error_of(client_id)):
        description, examined.reason = document_clients.described(error, examined.facts)
        raise ClientAuthenticationFailed(description, basic=False)
    examined.reason = because(reason or Reason.WRONG_METHOD, method=PRIVATE_KEY_JWT)
    raise ClientAuthenticationFailed(_UNPROVEN, basic=False)


def _keys(client: RegisteredClient, jwt: ClientJwt, examined: Examined) -> key_sets.Keys:
    try:
        return key_sets.of(client, jwt.kid)
    except KeySetUnavailable as error:
        examined.reason = because(Reason.KEY_SET, fault=str(error))
        description = key_sets.described(error, client)
        if error.is_passing:
            raise OAuth2Error(
                description, error="temporarily_unavailable", status_code=503
            ) from None
        raise ClientAuthenticationFailed(description, basic=False) from None


def _check_audience(client: RegisteredClient, audience: Any, endpoint: str) -> None:
    """FAPI 2.0 Security Profile §5.3.2.1 wants the issuer alone, as a text; RFC 9126 §2 allows the
    endpoint, too. A second server in the list might use the assertion here.
    """
    settings = context.settings()
    issuer = settings.issuer_of(client)
    if audience == issuer:
        return
    if client.is_fapi2:
        raise InvalidJwt(f"its aud has to be the issuer {issuer}, as a text", JwtFault.AUDIENCE)
    accepted = {issuer, *(settings.endpoint_of(client, name) for name in ("token", endpoint))}
    listed = audience if isinstance(audience, list) else [audience]
    if not listed or not all(isinstance(value, str) and value in accepted for value in listed):
        fault = f"its aud has to be the issuer {issuer}, or the token endpoint"
        raise InvalidJwt(fault, JwtFault.AUDIENCE)


def _use(claims: Mapping[str, Any], client: RegisteredClient) -> None:
    """Check its times, and count it as used."""
    now = clock.now()
    expires = client_jwt.expiry(claims, now.timestamp())
    issued = client_jwt.moment(claims, "iat")
    if issued is not None:
        if issued < now.timestamp() - MAX_ASSERTION_AGE:
            fault = "its iat is more than 5 minutes ago; check the clock of the client"
            raise InvalidJwt(fault, JwtFault.CLOCK)
        expires = min(expires, issued + MAX_ASSERTION_AGE)
    identifier = claims.get("jti")
    if not isinstance(identifier, str) or not 0 < len(identifier) <= client_jwt.MAX_ID:
        raise InvalidJwt(f"it has no jti, a text of at most {client_jwt.MAX_ID} characters")
    fault = "its jti was used before; make a new one for each request"
    until = datetime.fromtimestamp(expires, UTC)
    _use_once(SingleUse("assertion", client.client_id, identifier, until), fault)


def _use_once(use: SingleUse, fault: str) -> None:
    """Count an assertion as used. Raises `InvalidJwt` with this fault if it was already."""
    try:
        is_first = transaction.committed(partial(use_once, use=use, now=clock.now(), is_alone=True))
    except TooManyUsed:
        raise InvalidJwt("too many assertions of the client are unexpired") from None
    if not is_first:
        raise InvalidJwt(fault, JwtFault.USED_BEFORE)
