"""The client credentials grant (RFC 6749 §4.4): a service gets a token for itself, for one API."""

from datetime import timedelta
from typing import Any

from authlib.oauth2.rfc6749.errors import InvalidScopeError, UnauthorizedClientError
from authlib.oauth2.rfc6749.grants import (
    ClientCredentialsGrant as AuthlibClientCredentialsGrant,
)

from sso import clock, context
from sso.crypto import keys, secrets
from sso.flow import resources, token_claims
from sso.flow.refusals import Cause, describe
from sso.flow.resources import Api
from sso.oauth import client_authentication, dpop, tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.ratelimit import limiting
from sso.store import clients, service_tokens
from sso.store.clients import RegisteredClient
from sso.store.service_tokens import NewServiceToken


class ClientCredentialsGrant(AuthlibClientCredentialsGrant):
    """Issues an access token without a person: no refresh token, no identity token.

    The groups of an API restrict people only. A service may use the APIs that it is registered for.
    """

    request: ProtocolRequest
    TOKEN_ENDPOINT_AUTH_METHODS = client_authentication.CONFIDENTIAL_METHODS

    api: Api
    scope: str

    def validate_token_request(self) -> None:
        """Steps 1 to 3. Raises `OAuth2Error` and `TooManyAttempts`."""
        request = self.request

        # 1. Authenticate the client, which is never a public one.
        client = client_authentication.authenticate(
            request, self._find, "token", self.TOKEN_ENDPOINT_AUTH_METHODS
        )
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClientError(f"The client may not use grant_type={self.GRANT_TYPE}.")
        limiting.spend_own(limiting.SERVICE_TOKENS, client.client_id, kind="client")
        dpop.read(request, "token", is_needed=client.requires_dpop)

        # 2. Find the API.
        resource, issuer = request.form.get("resource"), context.settings().issuer_of(client)
        try:
            self.api = resources.of_service(resource, client.default_api, request.apis, issuer)
        except resources.InvalidTarget as error:
            request.facts["resource"] = resource or client.default_api or ""
            raise tokens.InvalidTarget(error.description) from None

        # 3. Compare the scope with what the client is registered for there.
        scope = resources.scope_of_service(request.payload.scope, self.api)
        if scope is None:
            request.facts["requested_scope"] = request.payload.scope
            raise InvalidScopeError(describe(Cause.NO_SCOPE_OF_API, resource=self.api.identifier))
        self.scope = scope

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """Steps 4 and 5. Raises `OAuth2Error`; the endpoint then rolls back."""
        request, client, api = self.request, self.request.client, self.api

        # 4. Sign.
        dpop.use(request.connection, request.proof)
        now, lifetime, jti = clock.now(), tokens.lifetime_for(api), keys.make_jti()
        expires_at = now + timedelta(seconds=lifetime)
        claims = token_claims.of_service_token(
            client.client_id,
            api.identifier,
            self.scope,
            issuer=context.settings().issuer_of(client),
            jti=jti,
            issued_at=now,
            expires_at=expires_at,
            dpop_jkt=request.dpop_jkt,
        )
        access_token = context.key_ring().sign(claims, keys.ACCESS_TOKEN_ALGORITHM, "at+jwt")

        # 5. Store it, if the client is still as it was in step 1.
        token = NewServiceToken(
            jti=jti,
            client_id=client.client_id,
            audience=api.identifier,
            scope=self.scope,
            access_digest=secrets.digest(access_token),
            dpop_jkt=request.dpop_jkt,
            issued_at=now,
            expires_at=expires_at,
        )
        if not service_tokens.add(request.connection, token, client.updated_at):
            raise client_authentication.ClientAuthenticationFailed(
                client_authentication.CHANGED, basic=request.used_basic
            )
        request.service_token = token
        answer = {
            "access_token": access_token,
            "token_type": tokens.token_type(request.dpop_jkt),
            "expires_in": lifetime,
            "scope": self.scope,
        }
        return 200, answer, self.TOKEN_RESPONSE_HEADER

    def _find(self, client_id: str) -> RegisteredClient | None:
        return clients.find_enabled(self.request.connection, client_id)
