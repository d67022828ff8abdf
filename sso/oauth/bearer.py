"""Access tokens at userinfo (RFC 6750, RFC 9449 §7): where they may stand, and their errors."""

from dataclasses import replace
from typing import Any, NoReturn

from authlib.integrations.flask_oauth2 import ResourceProtector as AuthlibResourceProtector
from authlib.oauth2.rfc6749.errors import (
    InvalidRequestError,
    OAuth2Error,
    UnauthorizedClientError,
)
from authlib.oauth2.rfc6750 import BearerTokenValidator as AuthlibBearerTokenValidator
from authlib.oauth2.rfc6750 import InvalidTokenError
from flask import abort, g
from flask import request as flask_request
from sqlalchemy import Connection

from sso import clock, database
from sso.audit.events import Event
from sso.flow import narrowing, scopes
from sso.flow.refusals import Cause, KeyFault, Reason, because, describe
from sso.i18n.message import code_of
from sso.oauth import client_addresses, dpop, tokens
from sso.ratelimit import refusals
from sso.store import service_tokens
from sso.store import tokens as store
from sso.store.tokens import AccessToken
from sso.web import errors, headers, parameters

REALM = "sso"


class MissingToken(OAuth2Error):
    """No credentials: a bare challenge, without an error code (§3.1)."""

    error = "invalid_token"
    description = "An access token is missing; send it in the Authorization header."
    status_code = 401


class WrongKey(InvalidTokenError):
    """The token does not go with the key of the request, or with its scheme (RFC 9449 §7)."""

    def __init__(self, fault: KeyFault, description: str) -> None:
        super().__init__(description)
        self.fault = fault


class NeedsKey(WrongKey):
    """A token that is sent as Bearer, and may not be (RFC 9449 §7.2)."""


class BearerTokenValidator(AuthlibBearerTokenValidator):
    """A token is good when its row, found by `jti`, vouches for it."""

    def authenticate_token(self, token_string: str) -> AccessToken | None:
        """Return the token. Raises `OAuth2Error` if its key is not that of the request."""
        jti = tokens.claimed_jti(token_string)
        if jti is None:
            return None
        with database.connection() as connection:
            access_token = store.find_access_token(connection, jti)
        if access_token is None or not tokens.is_genuine(token_string, access_token.access_digest):
            return None
        headers.allow_origins_of(access_token.client)
        if access_token.is_expired() or access_token.is_revoked():
            return access_token  # Authlib refuses it
        if not tokens.has_issuer_of(token_string, access_token.client):
            raise InvalidTokenError(describe(Cause.MOVED))
        try:
            client_addresses.check_address(access_token.client)
        except UnauthorizedClientError as error:
            raise InvalidTokenError(error.description) from None
        if access_token.audience is not None:
            fault = describe(Cause.WRONG_AUDIENCE, resource=access_token.audience)
            raise InvalidTokenError(fault)
        _check_key(access_token, token_string)
        return _as_allowed_now(access_token)


def _check_key(token: AccessToken, text: str) -> None:
    """Check the scheme, and the proof that goes with DPoP. Raises `OAuth2Error`."""
    by_dpop = _scheme() == "dpop"
    if by_dpop != (token.dpop_jkt is not None):
        if by_dpop:
            description = "The access token is not bound to a key: send it with the scheme Bearer."
            raise WrongKey(KeyFault.NOT_BOUND, description)
        raise NeedsKey(
            KeyFault.SENT_AS_BEARER,
            "The access token is bound to a key: send it with the scheme DPoP and a proof.",
        )
    if not by_dpop:
        if token.client.requires_dpop:
            raise NeedsKey(
                KeyFault.NO_LONGER_ENOUGH,
                "The access token is not bound to a key, which this client requires by now.",
            )
        return
    header = flask_request.environ.get("HTTP_DPOP")
    try:
        proof = dpop.verify(header, token.client, "userinfo", text)
    except dpop.RefusedProof as error:
        error.status_code = 401
        raise
    if proof.thumbprint != token.dpop_jkt:
        raise WrongKey(
            KeyFault.ANOTHER_KEY,
            "The access token is bound to another key than that of the DPoP proof.",
        )
    g.sso_proof = proof


def _as_allowed_now(token: AccessToken) -> AccessToken:
    """Return the token, reduced to what its grant may still give. Raises `InvalidTokenError`."""
    allowed = narrowing.allowed(token.client, token.user.groups, token.grant)
    if allowed.refusal:
        raise InvalidTokenError(allowed.refusal)
    scope = allowed.scope_of(token.scope)
    claims = allowed.claims_of(token.grant.claims)
    if token.is_narrowed:
        claims = narrowing.within(claims, scopes.split(scope))
    if (scope, claims) == (token.scope, token.grant.claims):
        return token
    return replace(token, scope=scope, grant=replace(token.grant, claims=claims))


class ResourceProtector(AuthlibResourceProtector):
    """Takes the token from the header, or from the form body of a POST; never from the query."""

    def parse_request_authorization(self, request: Any) -> tuple[BearerTokenValidator, str]:
        """Validator and token (§2.1, §2.2). Raises `OAuth2Error`."""
        token = presented()
        if token is None:
            raise MissingToken
        return self.get_token_validator("bearer"), token

    def acquire_token(self, scopes: list[str] | None = None, **more: Any) -> AccessToken:
        """Return the token of the request. Raises `OAuth2Error`."""
        # Authlib would put the request's whole URL together, which is 5 % of the request.
        token: AccessToken = self.validate_request(scopes, flask_request, **more)
        return token

    def use_proof(self, connection: Connection) -> None:
        """Use the proof that came with the token. Ends the request if it was used before."""
        try:
            dpop.use(connection, g.sso_proof, is_alone=True)
        except dpop.RefusedProof as error:
            error.status_code = 401
            self.raise_error_response(error)

    def raise_error_response(self, error: OAuth2Error) -> NoReturn:
        """Answer as §3 says."""
        _note_refusal(error)
        challenge = {"WWW-Authenticate": _challenges(error)} if error.status_code != 400 else None
        abort(
            errors.as_json(error.error, error.get_error_description(), error.status_code, challenge)
        )


require_oauth = ResourceProtector()
require_oauth.register_token_validator(BearerTokenValidator(realm=REALM))


def presented() -> str | None:
    """Return the token in the request. Raises `InvalidRequestError`."""
    header = _from_header()
    body = _from_body()
    if header and body:
        raise InvalidRequestError(describe(Cause.TWO_ACCESS_TOKENS))
    return header or body


def _from_header() -> str | None:
    token = flask_request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")[2]
    return token.strip() or None if _scheme() in ("bearer", "dpop") else None


def _scheme() -> str:
    scheme: str = flask_request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")[0]
    return scheme.lower()


def _from_body() -> str | None:
    if flask_request.method != "POST" or flask_request.mimetype != parameters.FORM:
        return None
    try:
        pairs = parameters.form_pairs(flask_request)
        return parameters.single(pairs, ("access_token",)).get("access_token")
    except parameters.ParameterFault as error:
        raise InvalidRequestError(str(error)) from None


def _challenges(error: OAuth2Error) -> list[str]:
    """Return the `WWW-Authenticate` headers of an error (RFC 6750 §3, RFC 9449 §7.1)."""
    bearer, by_dpop = f'Bearer realm="{REALM}"', f'DPoP realm="{REALM}", algs="{dpop.ALGORITHMS}"'
    if isinstance(error, MissingToken):
        return [bearer, by_dpop]
    is_dpop = _scheme() == "dpop" or isinstance(error, NeedsKey)
    parameters = f'error="{error.error}", error_description="{error.get_error_description()}"'
    return [f"{by_dpop if is_dpop else bearer}, {parameters}"]


def _service_of(text: str, jti: str | None) -> str | None:
    """Return the client that got this token for itself."""
    if jti is None or not tokens.is_of_service(text):
        return None
    with database.connection() as connection:
        token = service_tokens.find(connection, jti)
    if token is None or not tokens.is_genuine(text, token.access_digest):
        return None
    return token.client.client_id


def _note_refusal(error: OAuth2Error) -> None:
    """Note for the log and the audit trail why a token is refused, and whose it is."""
    fields: dict[str, Any] = {
        "error": error.error,
        "description": error.get_error_description(),
    }
    if isinstance(error, MissingToken):
        refusals.record(None, budget=None, **fields)
        return
    facts: dict[str, object] = {}
    if isinstance(error, dpop.RefusedProof):
        facts |= error.facts
    elif isinstance(error, WrongKey):
        facts["dpop"] = error.fault
    if error.status_code != 400:  # there is one token, and it can be read
        token = presented() or ""
        jti, reasons = tokens.claimed_jti(token), None
        if jti is not None:
            with database.connection() as connection:
                reasons = store.refusal_reasons_of_access(connection, jti)
        if reasons is None and (service := _service_of(token, jti)):
            fields |= {"reason": because(Reason.OF_SERVICE), "client": service}
        elif reasons is None:
            fields["reason"] = because(Reason.UNKNOWN if jti else Reason.NOT_OURS)
        else:
            genuine = tokens.is_genuine(token, reasons.digest)
            fields["reason"] = reasons.reason(clock.now()) if genuine else because(Reason.ALTERED)
            fields |= {"client": reasons.client_id, "user": reasons.user_id}
            facts |= reasons.facts()
            if code_of(error.get_error_description()) == Cause.NO_LONGER_A_MEMBER:
                facts["user"] = reasons.user_id
    event = Event.ACCESS_TOKEN_REFUSED
    refusals.record(event, budget=event, facts=facts, **fields)
