"""Authlib's authorization server, told where clients are and how faults are answered."""

import json
from typing import TYPE_CHECKING, Any

from authlib.integrations.flask_oauth2 import AuthorizationServer as AuthlibAuthorizationServer
from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error
from flask import Response, g
from werkzeug.datastructures import Headers

from sso.flow.request import can_be_posted
from sso.models import Client
from sso.oauth import authorization_response, client_authentication, refusal, unverified
from sso.oauth.request import ProtocolRequest
from sso.store import clients
from sso.web import errors, routing

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class ProtocolResponse(Response):
    """An answer whose headers go out as they are; its body is a text, and so has its length."""

    def get_wsgi_headers(self, environ: "WSGIEnvironment") -> Headers:
        # Werkzeug copies them, and takes a Location apart and encodes it again, as if a person had
        # typed it. Ours is one of ASCII: `addresses` registers no other, and adds parameters
        # encoded.
        return self.headers


class AuthorizationServer(AuthlibAuthorizationServer):
    """One transaction a request: nothing here commits, the endpoint does."""

    def load_config(self, config: dict[str, Any]) -> None:
        """Nothing: lifetimes and generators are the grants' own (see `token_response`)."""

    def endpoint(self, name: str) -> Any:
        """The registered endpoint of this name."""
        return self._endpoints[name][0]

    def query_client(self, client_id: str) -> Client | None:
        """The enabled client; asked for once a request."""
        known: Client | None = g.get("sso_client")
        if known is None or known.client_id != client_id:
            known = g.sso_client = clients.find_enabled(client_id)
        return known

    def authenticate_client(
        self, request: ProtocolRequest, methods: list[str], endpoint: str = "token"
    ) -> Client:
        return client_authentication.authenticate(request, self.query_client, endpoint)

    def create_oauth2_request(self, request: ProtocolRequest) -> ProtocolRequest:
        """Requests are read by `oauth.request`, strictly, before Authlib sees them."""
        return request

    def get_token_grant(self, request: ProtocolRequest) -> Any:
        # Authlib takes a missing grant_type for an unsupported one, and describes neither.
        if not request.payload.grant_type:
            raise InvalidRequestError("The parameter 'grant_type' is missing.")
        for grant_class, extensions in self._token_grants:
            if request.payload.grant_type == grant_class.GRANT_TYPE:
                grant = grant_class(request, self)
                for extension in extensions or ():
                    extension(grant)
                return grant
        raise OAuth2Error(
            "The grant_type is neither authorization_code nor refresh_token.",
            error="unsupported_grant_type",
        )

    def create_token_response(self, request: ProtocolRequest) -> Response:
        # Authlib catches one error alone while it looks for the grant.
        try:
            response: Response = super().create_token_response(request)
        except OAuth2Error as error:
            return self.handle_error_response(request, error)
        return response

    def handle_response(
        self, status: int, payload: Any, headers: list[tuple[str, str]]
    ) -> Response:
        body = json.dumps(payload) if isinstance(payload, dict) else payload
        return ProtocolResponse(body, status=status, headers=headers)

    def handle_error_response(
        self, request: ProtocolRequest | None, error: OAuth2Error
    ) -> Response:
        """To a proven address; else a page in the browser's case and JSON in the backend's.

        `None`: the request could not be read.
        """
        refusal.note(request, error)
        description = error.get_error_description() or "The request is not valid."
        if request and error.redirect_uri:
            data = request.payload.data
            posted = _response_mode(data, error) == "form_post" and can_be_posted(
                error.redirect_uri, data.get("state", "")
            )
            answer = authorization_response.to_client(
                error.redirect_uri,
                [("error", error.error), ("error_description", description)],
                request.payload.state,
                "form_post" if posted else "query",
            )
            return self.handle_response(*answer)
        if routing.is_protocol():
            return errors.from_oauth(error)
        mend = _MENDS.get(error.error)
        if mend and isinstance(error, refusal.UnregisteredRedirectUri):
            mend = f"{mend}; add an address with: {_ADDING}"
        return errors.page(description, error=error.error, hint=mend, for_developers=True)

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Nothing: security events are logged by `audit` where they happen."""


def _response_mode(data: dict[str, str], error: OAuth2Error) -> str | None:
    """How the client wants to be told of an error.

    In a request object that is refused, a client may have said so there alone. It is unverified,
    but so is the query; and it takes precedence over the query (OIDC Core §6.1).
    """
    inside = None
    if error.error == "request_not_supported":
        inside = unverified.response_mode_of(data.get("request", ""))
    return inside or data.get("response_mode")


_ADDING = "flask client update CLIENT_ID --add-redirect-uri URI"
_MENDS = {
    "invalid_client": "Compare the client_id with the output of: flask client list",
    "invalid_request": "Compare the request with the registration: flask client show CLIENT_ID",
}
