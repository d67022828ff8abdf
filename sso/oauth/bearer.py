"""Bearer tokens (RFC 6750): where they may stand, and how their errors are answered."""

from dataclasses import replace
from typing import Any, NoReturn

from authlib.integrations.flask_oauth2 import ResourceProtector as AuthlibResourceProtector
from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error
from authlib.oauth2.rfc6750 import BearerTokenValidator as AuthlibBearerTokenValidator
from authlib.oauth2.rfc6750 import InvalidTokenError
from flask import abort, g
from flask import request as flask_request

from sso import clock, database
from sso.audit.events import Event
from sso.flow import narrowing, scopes
from sso.oauth import tokens
from sso.ratelimit import refusals
from sso.store import tokens as store
from sso.store.tokens import AccessToken
from sso.web import errors, headers, parameters

REALM = "sso"


class MissingToken(OAuth2Error):
    """No credentials: a bare challenge, without an error code (§3.1)."""

    error = "invalid_token"
    description = "An access token is missing; send it in the Authorization header."
    status_code = 401


class BearerTokenValidator(AuthlibBearerTokenValidator):
    """A token is good when its row, found by `jti`, vouches for it."""

    def authenticate_token(self, token_string: str) -> AccessToken | None:
        jti = tokens.claimed_jti(token_string)
        if jti is None:
            return None
        with database.reader() as connection:
            found = store.find_access_token(connection, jti)
        if found is None or not tokens.is_genuine(token_string, found.access_digest):
            return None
        headers.allow_origins_of(found.client)
        if found.is_expired() or found.is_revoked():
            return found  # Authlib refuses it
        return _as_allowed_now(found)


def _as_allowed_now(token: AccessToken) -> AccessToken:
    """The token, reduced to what its grant may still give. Raises `InvalidTokenError`."""
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
        """The token of this request, as `current_token` gives it. Raises `OAuth2Error`."""
        # Authlib would first put the request's whole URL together, which costs more than the rest.
        token: AccessToken = self.validate_request(scopes, flask_request, **more)
        g.authlib_server_oauth2_token = token
        return token

    def raise_error_response(self, error: OAuth2Error) -> NoReturn:
        """Answer as §3 says."""
        _note_refusal(error)
        challenge = {"WWW-Authenticate": _challenge(error)} if error.status_code != 400 else None
        abort(
            errors.as_json(error.error, error.get_error_description(), error.status_code, challenge)
        )


require_oauth = ResourceProtector()
require_oauth.register_token_validator(BearerTokenValidator(realm=REALM))


def presented() -> str | None:
    """The token that the request brings. Raises `InvalidRequestError`."""
    header = _from_header()
    body = _from_body()
    if header and body:
        raise InvalidRequestError("The access token is sent in two places; use one.")
    return header or body


def _from_header() -> str | None:
    scheme, _, token = flask_request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _from_body() -> str | None:
    if flask_request.method != "POST" or flask_request.mimetype != parameters.FORM:
        return None
    try:
        pairs = parameters.form_pairs(flask_request)
        return parameters.single(pairs, ("access_token",)).get("access_token")
    except parameters.ParameterFault as error:
        raise InvalidRequestError(str(error)) from None


def _challenge(error: OAuth2Error) -> str:
    """The `WWW-Authenticate` header of an error (§3)."""
    if isinstance(error, MissingToken):
        return f'Bearer realm="{REALM}"'
    return (
        f'Bearer realm="{REALM}", error="{error.error}", '
        f'error_description="{error.get_error_description()}"'
    )


def _note_refusal(error: OAuth2Error) -> None:
    """Note for the log and the audit trail why a token is refused, and whose it is."""
    fields: dict[str, Any] = {
        "error": error.error,
        "description": error.get_error_description(),
    }
    if isinstance(error, MissingToken):
        refusals.note(None, budget=None, **fields)
        return
    facts: dict[str, object] = {}
    if error.status_code != 400:  # there is one token, and it can be read
        token = presented() or ""
        jti, found = tokens.claimed_jti(token), None
        if jti is not None:
            with database.reader() as connection:
                found = store.refusal_reasons_of_access(connection, jti)
        if found is None:
            fields["reason"] = "unknown" if jti else "not a token of this server"
        else:
            genuine = tokens.is_genuine(token, found.digest)
            fields["reason"] = found.reason(clock.now()) if genuine else "altered"
            fields |= {"client": found.client_id, "user": found.user_id}
            facts = found.facts()
            if error.get_error_description() == narrowing.NOT_A_MEMBER:
                facts["user"] = found.user_id
    event = Event.ACCESS_TOKEN_REFUSED
    refusals.note(event, budget=event, facts=facts, **fields)
