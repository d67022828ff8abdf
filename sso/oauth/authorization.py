"""The code grant at the authorization endpoint (RFC 6749 §4.1.1, §4.1.2).

Validates a request and issues a code, which `oauth.grants.authorization_code` exchanges.
"""

from datetime import timedelta

from authlib.oauth2.rfc6749.errors import (
    AccessDeniedError,
    InvalidClientError,
    InvalidRequestError,
    OAuth2Error,
    UnauthorizedClientError,
)

from sso import clock, context
from sso.crypto import secrets
from sso.flow import decision
from sso.flow import request as flow_request
from sso.flow.refusals import Cause, because, describe
from sso.flow.request import AuthorizationRequest
from sso.oauth import document_clients, response, tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.ratelimit import refusals
from sso.store import approvals, clients
from sso.store.clients import RegisteredClient
from sso.store.sessions import ResourceOwner
from sso.web import parameters

# `state` goes back as it came, whatever it holds; only that of a pushed request is stored.
_CLEAN = tuple(name for name in flow_request.PARAMETERS if name != "state")

MAX_FAPI_CODE_LIFETIME = 60  # seconds (FAPI 2.0 Security Profile §5.3.2.1)


class Overtaken(Exception):
    """What the decision was made from has changed meanwhile: decide again."""


class AuthorizationEndpoint:
    """Mix into Authlib's grant. `request.client` was found together with the session."""

    request: ProtocolRequest

    @classmethod
    def check_authorization_endpoint(cls, request: ProtocolRequest) -> bool:
        """Accept every request: the response type is checked after the redirect_uri."""
        return True

    def validate_authorization_request(self) -> str:
        """Prove client and redirect_uri, then judge the rest. Returns the proven `redirect_uri`.

        Errors raised before the marked line have no `redirect_uri`: they become a page.
        """
        request, payload, client = self.request, self.request.payload, self.request.client
        if not payload.client_id:
            raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name="client_id"))
        if client is None:
            if error := document_clients.error_of(payload.client_id):
                description, fault = document_clients.described(error, request.facts)
                request.details["reason"] = fault
                raise InvalidClientError(description)
            if reason := clients.why_not_enabled(request.connection, payload.client_id):
                request.details["reason"] = because(reason)
            raise InvalidClientError("No client with this client_id is registered and enabled.")
        redirect_uri = self.validate_authorization_redirect_uri(request, client)
        # ---- from here on the redirect_uri is proven, and errors go to the client ----
        try:
            if client.requires_par and not request.is_pushed:
                raise InvalidRequestError(describe(Cause.NOT_PUSHED))
            self._validate_response_type(request, client)
            request.authorization_request = self._parse(dict(payload.data), client)
        except OAuth2Error as error:
            error.redirect_uri = redirect_uri
            raise
        return redirect_uri

    @staticmethod
    def validate_authorization_redirect_uri(
        request: ProtocolRequest, client: RegisteredClient
    ) -> str:
        """Exact comparison (RFC 9700 §4.1.3); the description never echoes the URI."""
        redirect_uri = request.payload.redirect_uri
        if not redirect_uri:
            raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name="redirect_uri"))
        if not client.check_redirect_uri(redirect_uri):
            request.details["redirect_uri"] = refusals.without_query(redirect_uri)
            request.facts["redirect_uri"] = redirect_uri
            raise response.UnregisteredRedirectUri
        return str(redirect_uri)

    @staticmethod
    def _validate_response_type(request: ProtocolRequest, client: RegisteredClient) -> None:
        response_type = request.payload.response_type
        if response_type != "code":
            request.facts |= {"parameter": "response_type", "sent": response_type}
        if response_type is None:
            raise InvalidRequestError(describe(Cause.MISSING_RESPONSE_TYPE))
        if response_type != "code":
            raise OAuth2Error(
                error="unsupported_response_type",
                description=describe(Cause.UNSUPPORTED_RESPONSE_TYPE),
            )
        if not client.check_response_type(response_type):
            raise UnauthorizedClientError("The client is not registered for response_type=code.")

    def _parse(self, values: dict[str, str], client: RegisteredClient) -> AuthorizationRequest:
        """Parse the other parameters (OIDC Core §3.1.2.1). Raises the first `OAuth2Error`."""
        try:
            parameters.check_clean(values, _CLEAN)
            return flow_request.parse(
                values,
                registered_scope=client.scope,
                require_pkce=client.require_pkce or client.is_public,
                # With PKCE and `iss`, nothing depends on it (FAPI 2.0 Security Profile §5.3.2.2).
                # Some agents send none, such as those with the TypeScript SDK of MCP.
                require_state=not (client.is_fapi2 or client.is_agent),
                signs_responses=client.authorization_signed_response_alg is not None,
                hinted_subject=hinted_subject(values.get("id_token_hint"), client),
                now=clock.now(),
                apis=self.request.apis,
                default_api=self.request.default_api,
                issuer=context.settings().issuer_of(client),
            )
        except parameters.ParameterFault as error:
            self.request.facts["parameter"] = error.name
            raise OAuth2Error(str(error), error="invalid_request") from None
        except flow_request.InvalidRequest as error:
            if error.error == "invalid_scope":
                self.request.details["dropped"] = values.get("scope")
            if error.error == "invalid_target":
                self.request.facts["resource"] = values.get("resource") or self.request.default_api
            if error.parameter:
                self.request.facts |= _what_was_sent(error.parameter, values)
            raise OAuth2Error(error.description, error=error.error) from None

    def create_authorization_response(
        self, redirect_uri: str, grant_user: ResourceOwner | None
    ) -> response.AuthlibAnswer:
        """Answer with a code for the user that is signed in. Raises `Overtaken`."""
        if grant_user is None:
            raise AccessDeniedError(describe(Cause.DENIED), redirect_uri=redirect_uri)
        self.request.user = grant_user
        code = secrets.make_secret(secrets.AUTHORIZATION_CODE)
        self.save_authorization_code(code, self.request)
        authorization_request = self.request.asked
        return response.to_client(
            self.request.client,
            redirect_uri,
            [("code", code)],
            authorization_request.state,
            authorization_request.response_mode,
        )

    def save_authorization_code(self, code: str, request: ProtocolRequest) -> None:
        """Store one approval and its code. Raises `Overtaken`."""
        authorization_request, client, now = request.asked, request.client, clock.now()
        owner: ResourceOwner = request.user
        seconds = context.settings().authorization_code_lifetime
        if client.is_fapi2:
            seconds = min(seconds, MAX_FAPI_CODE_LIFETIME)
        lifetime = timedelta(seconds=seconds)
        consented_at = owner.consent.updated_at if owner.consent else None
        decided_on = approvals.Seen(client.updated_at, owner.user_seen, consented_at)
        new_code = approvals.NewCode(
            digest=secrets.digest(code),
            redirect_uri=authorization_request.redirect_uri,
            nonce=authorization_request.nonce,
            code_challenge=authorization_request.code_challenge,
            dpop_jkt=authorization_request.dpop_jkt,
            once=authorization_request.once,
            expires_at=now + lifetime,
        )
        columns = {
            "codes_since": now - lifetime,
            "user_id": owner.user_id,
            "client_id": client.client_id,
            "session_id": owner.session_id,
            "sid": str(owner.session_id),
            "auth_time": owner.auth_time,
            "amr": owner.amr,
            **decision.granted(authorization_request, owner.acr),
        }
        connection, is_alone = request.connection, request.writes_code_alone
        if request.pushed_use and is_alone:
            request.is_used_up = approvals.add_and_use_pushed(
                connection, decided_on, new_code, request.pushed_use, **columns
            )
            if request.is_used_up:
                return
            is_alone = False
        if not approvals.add(connection, decided_on, new_code, is_last=is_alone, **columns):
            raise Overtaken


# What a program sets, and never a person or chance: no secrets.
_SHOWN = frozenset({"code_challenge_method", "max_age", "prompt", "response_mode"})


def _what_was_sent(name: str, values: dict[str, str]) -> dict[str, object]:
    """About a parameter that is refused, for `flask explain`."""
    facts: dict[str, object] = {"parameter": name}
    if name in _SHOWN:
        facts["sent"] = values.get(name)
    if name == "id_token_hint":
        facts |= tokens.facts_of_hint(values[name])
    return facts


def hinted_subject(id_token_hint: str | None, client: RegisteredClient) -> str | None:
    """Return the user that a hint names; it may be expired. Raises `InvalidRequest`."""
    if id_token_hint is None:
        return None
    claims = tokens.claims_of_hint(id_token_hint)
    if claims is None:
        raise flow_request.InvalidRequest(
            "invalid_request",
            "The 'id_token_hint' is no identity token of this server, or too old to be verified.",
            "id_token_hint",
        )
    if claims.get("aud") != client.client_id:
        raise flow_request.InvalidRequest(
            "invalid_request",
            "The 'id_token_hint' was issued to another client.",
            "id_token_hint",
        )
    return str(claims.get("sub"))
