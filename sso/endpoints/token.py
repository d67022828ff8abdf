"""The token endpoint (RFC 6749 §3.2)."""

from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import Response

from sso import audit, context
from sso.audit.events import Event
from sso.oauth import authorization_server, client_authentication
from sso.oauth.request import TOKEN_FIELDS, ProtocolRequest, form_request
from sso.observability import counters
from sso.services import transaction


def token() -> Response:
    """Token endpoint: exchanges an authorization code or a refresh token.

    Tokens are answered after they are committed, or nothing has happened. A code is redeemed last,
    so that no stranger burns it with a wrong verifier or address. A revocation after reuse is kept,
    although the answer is an error.
    """
    server = authorization_server()
    try:
        request = form_request(TOKEN_FIELDS)
    except OAuth2Error as error:
        counters.token_request(None, error.error)
        return server.handle_error_response(None, error)
    context.key_ring().refresh()
    client_authentication.examine_assertion(request, "token")
    with transaction.begin() as changes:
        request.connection = changes.connection
        response = server.create_token_response(request)
        if response.status_code == 200 or request.keep_changes:
            changes.commit()
    refused = None if response.status_code == 200 else str(response.get_json()["error"])
    counters.token_request(request.payload.grant_type, refused)
    if refused is None:
        _tell(request)
    return response


def _tell(request: ProtocolRequest) -> None:
    """After the commit: the trail must not add a statement to a transaction this frequent."""
    if live_grant := request.live_grant:
        first = request.payload.grant_type == "authorization_code"
        audit.event(
            Event.TOKENS_ISSUED if first else Event.TOKENS_REFRESHED,
            user=live_grant.user_id,
            client=live_grant.client_id,
            grant=live_grant.id,
            scope=live_grant.scope,
        )
