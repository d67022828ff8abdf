"""Client authentication with a signed JWT: private_key_jwt (RFC 7523 §3, OIDC Core §9).

An assertion is verified before the transaction of its request begins: keys may have to be read from
a URL, and an assertion counts as used even if the request fails. Authlib's verification takes other
algorithms than FAPI, and neither bounds an assertion's life nor compares it with `client_id`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeGuard

from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error
from authlib.oauth2.rfc7523.client import ASSERTION_TYPE

from sso import audit, clock, context, database
from sso.config.auth_methods import PRIVATE_KEY_JWT
from sso.config.urls import ENDPOINTS
from sso.crypto import client_jwt
from sso.crypto.client_jwt import ClientJwt, InvalidJwt
from sso.oauth import key_sets
from sso.oauth.client_authentication import ClientAuthenticationFailed
from sso.oauth.key_sets import KeySetUnavailable
from sso.oauth.request import Examined, ProtocolRequest
from sso.services import transaction
from sso.store import clients
from sso.store.clients import RegisteredClient
from sso.store.redemption import TooManyUsed, use_once

MAX_FACT = 200  # characters
MAX_AGE = 300  # seconds since its `iat`
# RFC 7523 leaves the type open; its successor wants the first.
_TYPES = ("client-authentication+jwt", "jwt", None)
_UNPROVEN = (
    "The client is unknown or disabled, or the assertion is not signed with one of its keys."
)


def examine(request: ProtocolRequest, endpoint: str) -> None:
    """Verify the assertion of a request, if it has one; `client_authentication` uses the result.

    `endpoint`: its name in `ENDPOINTS`. No transaction may be open.
    """
    form = request.form
    if "client_assertion" not in form and "client_assertion_type" not in form:
        return
    request.examined = found = Examined(form.get("client_id", ""))
    try:
        found.client = _proven(request, endpoint, found)
    except InvalidJwt as error:
        found.failure = ClientAuthenticationFailed(
            f"The client assertion is refused: {error}.", basic=False
        )
        found.reason = found.reason or f"assertion: {error}"
    except OAuth2Error as error:
        found.failure = error


def _proven(request: ProtocolRequest, endpoint: str, found: Examined) -> RegisteredClient:
    form = request.form
    if "client_secret" in form or "Authorization" in request.headers:
        raise InvalidRequestError(
            "The client authenticates in two ways at once; use one (RFC 6749 section 2.3)."
        )
    if form.get("client_assertion_type") != ASSERTION_TYPE:
        raise InvalidJwt(f"client_assertion_type is not {ASSERTION_TYPE}")
    jwt = client_jwt.read(form.get("client_assertion", ""))
    subject = jwt.claims.get("sub")
    if not _is_client_id(subject) or jwt.claims.get("iss") != subject:
        raise InvalidJwt("its iss and sub are not the client_id")
    if found.client_id not in ("", subject):
        raise InvalidJwt("its sub is not the client_id of the body")
    found.client_id = subject
    found.facts = _facts(jwt)
    client = _find(subject, found)
    fapi, registered = client.is_fapi2, client.token_endpoint_auth_signing_alg
    algorithms = client_jwt.FAPI_ALGORITHMS if fapi else client_jwt.ALGORITHMS
    client_jwt.verify(jwt, _keys(client, jwt, found), [registered] if registered else algorithms,
                      _TYPES)  # fmt: skip
    _check_audience(jwt.claims.get("aud"), endpoint, is_strict=fapi)
    _use(jwt.claims, client)
    return client


def _facts(jwt: ClientJwt) -> dict[str, object]:
    """What the assertion says of itself: nothing of it is proven, or secret."""
    values = {"kid": jwt.header.get("kid"), "alg": jwt.alg, "aud": jwt.claims.get("aud")}
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
    """Whether it can be looked up: a database takes neither NUL nor half of a surrogate pair."""
    return isinstance(text, str) and text.isascii() and text.isprintable()


def _find(client_id: str, found: Examined) -> RegisteredClient:
    with database.connection() as connection:
        client = clients.find_enabled(connection, client_id)
        found.reason = None if client else clients.why_not_enabled(connection, client_id)
    if client is not None and client.check_endpoint_auth_method(PRIVATE_KEY_JWT, ""):
        return client
    found.reason = found.reason or f"wrong method: {PRIVATE_KEY_JWT}"
    raise ClientAuthenticationFailed(_UNPROVEN, basic=False)


def _keys(client: RegisteredClient, jwt: ClientJwt, found: Examined) -> key_sets.Keys:
    try:
        return key_sets.of(client, jwt.kid)
    except KeySetUnavailable as error:
        found.reason, description = f"key set: {error}", key_sets.described(error, client)
        if error.is_passing:
            raise OAuth2Error(
                description, error="temporarily_unavailable", status_code=503
            ) from None
        raise ClientAuthenticationFailed(description, basic=False) from None


def _check_audience(audience: Any, endpoint: str, *, is_strict: bool) -> None:
    """FAPI 2.0 Security Profile §5.3.2.1 wants the issuer alone, as a text; RFC 9126 §2 allows the
    endpoint, too. A second server in the list might use the assertion here.
    """
    settings = context.settings()
    if audience == settings.issuer:
        return
    if is_strict:
        raise InvalidJwt(f"its aud has to be the issuer {settings.issuer}, as a text")
    endpoints = (settings.base_url + ENDPOINTS[one] for one in ("token", endpoint))
    accepted = {settings.issuer, *endpoints}
    listed = audience if isinstance(audience, list) else [audience]
    if not listed or not all(isinstance(one, str) and one in accepted for one in listed):
        raise InvalidJwt(f"its aud has to be the issuer {settings.issuer}, or the token endpoint")


def _use(claims: Mapping[str, Any], client: RegisteredClient) -> None:
    """Check its times, and count it as used."""
    now = clock.now()
    expires = client_jwt.expiry(claims, now.timestamp())
    issued = client_jwt.moment(claims, "iat")
    if issued is not None:
        if issued < now.timestamp() - MAX_AGE:
            raise InvalidJwt("its iat is more than 5 minutes ago; check the clock of the client")
        expires = min(expires, issued + MAX_AGE)
    identifier = claims.get("jti")
    if not isinstance(identifier, str) or not 0 < len(identifier) <= client_jwt.MAX_ID:
        raise InvalidJwt(f"it has no jti, a text of at most {client_jwt.MAX_ID} characters")
    until = datetime.fromtimestamp(expires, UTC)
    use = partial(use_once, kind="assertion", holder=client.client_id, identifier=identifier)
    try:
        is_first = transaction.committed(partial(use, now=now, expires_at=until))
    except TooManyUsed:
        raise InvalidJwt("too many assertions of the client are unexpired") from None
    if not is_first:
        raise InvalidJwt("its jti was used before; make a new one for each request")
