"""Bearer tokens (RFC 6750): where they may stand, and how their faults are answered."""

from typing import Any

from authlib.integrations.flask_oauth2 import ResourceProtector as AuthlibResourceProtector
from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error
from authlib.oauth2.rfc6750 import BearerTokenValidator as AuthlibBearerTokenValidator
from authlib.oauth2.rfc6750 import InvalidTokenError
from flask import request as flask_request

from sso.flow import narrowing, scopes
from sso.oauth import access_tokens
from sso.store import tokens
from sso.store.tokens import AccessToken
from sso.web import parameters

REALM = "sso"


class MissingToken(OAuth2Error):
    """No credentials: a bare challenge, without an error code (§3.1)."""

    error = "invalid_token"
    description = "An access token is missing; send it in the Authorization header."
    status_code = 401


class BearerTokenValidator(AuthlibBearerTokenValidator):
    """A token is good when its row, found by `jti`, vouches for it."""

    def authenticate_token(self, token_string: str) -> AccessToken | None:
        jti = access_tokens.claimed_jti(token_string)
        found = tokens.find_access_token(jti) if jti else None
        if found is None or not access_tokens.is_genuine(token_string, found.access_digest):
            return None
        if found.is_expired() or found.is_revoked():
            return found  # Authlib refuses it
        return _as_allowed_now(found)


def _as_allowed_now(token: AccessToken) -> AccessToken:
    """The token, reduced to what its grant may still give. Raises `InvalidTokenError`."""
    allowed = narrowing.allowed(token.client, token.user.groups, token.granted)
    if allowed.refusal:
        raise InvalidTokenError(allowed.refusal)
    scope = allowed.scope_of(token.scope)
    claims = allowed.claims_of(token.requested_claims)
    if token.is_narrowed:
        claims = narrowing.within(claims, scopes.split(scope))
    return token._replace(scope=scope, requested_claims=claims)


class ResourceProtector(AuthlibResourceProtector):
    """Takes the token from the header, or from the form body of a POST; never from the query."""

    def parse_request_authorization(self, request: Any) -> tuple[BearerTokenValidator, str]:
        """Validator and token (§2.1, §2.2). Raises `OAuth2Error`."""
        token = presented()
        if token is None:
            raise MissingToken
        return self.get_token_validator("bearer"), token


def presented() -> str | None:
    """The token that the request brings. Raises `InvalidRequestError`."""
    header = _from_header()
    body = _from_body()
    if header and body:
        raise InvalidRequestError("The access token is sent in two places; use one.")
    return header or body


def challenge(error: OAuth2Error) -> str:
    """The `WWW-Authenticate` header of a fault (§3)."""
    if isinstance(error, MissingToken):
        return f'Bearer realm="{REALM}"'
    return (
        f'Bearer realm="{REALM}", error="{error.error}", '
        f'error_description="{error.get_error_description()}"'
    )


def _from_header() -> str | None:
    scheme, _, token = flask_request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _from_body() -> str | None:
    if flask_request.method != "POST" or flask_request.mimetype != parameters.FORM:
        return None
    try:
        pairs = parameters.form_pairs(flask_request)
        return parameters.single(pairs, ("access_token",)).get("access_token")
    except parameters.ParameterFault as fault:
        raise InvalidRequestError(str(fault)) from None
