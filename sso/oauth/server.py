"""Authlib's authorization server, on this server's clients, requests and answers."""

import json
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer as AuthlibAuthorizationServer
from authlib.oauth2.rfc6749.errors import (
    InvalidRequestError,
    OAuth2Error,
    UnsupportedGrantTypeError,
)
from flask import Response

from sso import database
from sso.flow.refusals import Cause, describe
from sso.oauth import client_authentication, response
from sso.oauth.authlib_request import ProtocolRequest
from sso.store import clients
from sso.store.clients import RegisteredClient


class AuthorizationServer(AuthlibAuthorizationServer):
    """One transaction a request: nothing here commits, the endpoint does."""

    def load_config(self, config: dict[str, Any]) -> None:
        """Do nothing: lifetimes and generators are in `oauth.tokens`."""

    def query_client(self, client_id: str) -> RegisteredClient | None:
        """Return the enabled client, read on the session's connection.

        The grants find it on the connection of their request, together with what is presented.
        """
        return clients.find_enabled(database.session_connection(), client_id)

    def authenticate_client(
        self, request: ProtocolRequest, methods: list[str], endpoint: str = "token"
    ) -> RegisteredClient:
        return client_authentication.authenticate(request, self.query_client, endpoint, methods)

    def create_oauth2_request(self, request: ProtocolRequest) -> ProtocolRequest:
        """Requests are read by `oauth.authlib_request`, strictly, before Authlib sees them."""
        return request

    def get_token_grant(self, request: ProtocolRequest) -> Any:
        # Authlib takes a missing grant_type for an unsupported one, and describes neither.
        if not request.payload.grant_type:
            raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name="grant_type"))
        try:
            return super().get_token_grant(request)
        except UnsupportedGrantTypeError:
            raise OAuth2Error(
                "The grant_type is not one that this server supports.",
                error="unsupported_grant_type",
            ) from None

    def create_token_response(self, request: ProtocolRequest) -> Response:
        # Authlib catches only one error while it looks for the grant.
        try:
            response: Response = super().create_token_response(request)
        except OAuth2Error as error:
            return self.handle_error_response(request, error)
        return response

    def handle_response(
        self, status: int, payload: Any, headers: list[tuple[str, str]]
    ) -> Response:
        body = json.dumps(payload) if isinstance(payload, dict) else payload
        kind = response.ClientRedirect if status == 303 else Response
        return kind(body, status=status, headers=headers)

    def handle_error_response(
        self, request: ProtocolRequest | None, error: OAuth2Error
    ) -> Response:
        """Send the error to the client if its URI is proven; otherwise answer it here.

        `request` is `None` if it could not be read.
        """
        if request:
            request.error = error.error
        if response.is_no_refusal(request, error):
            return self.handle_response(*error())
        response.note_refusal(request, error)
        if request and error.redirect_uri and self._may_redirect(request):
            return self.handle_response(*response.error_to_client(request, error))
        return response.error_here(error, request.client if request else None)

    @staticmethod
    def _may_redirect(request: ProtocolRequest) -> bool:
        """Return whether an error may lead the browser to the client.

        A stranger can be an agent: without a person's decision, this would redirect openly
        (RFC 9700 §4.11.2).
        """
        asked = request.authorization_request
        return not request.client.is_agent or (asked is not None and asked.denied)

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Do nothing: security events are logged by `audit` where they happen."""
