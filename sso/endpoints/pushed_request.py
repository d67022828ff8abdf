"""The pushed authorization request endpoint (RFC 9126 §2)."""

import json
from collections.abc import Callable

from authlib.consts import default_json_headers
from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import Response

from sso import context
from sso.oauth import authorization_request, authorization_server, client_authentication
from sso.oauth.request import CLIENT_FIELDS, PUSHED_FIELDS, ProtocolRequest, form_request
from sso.services import transaction


def pushed_request() -> Response:
    """Pushed authorization requests: keeps a client's parameters for the authorization endpoint."""
    server = authorization_server()
    refuse: Callable[[ProtocolRequest | None, OAuth2Error], Response] = server.handle_error_response
    try:
        request = form_request(PUSHED_FIELDS, clean=(*CLIENT_FIELDS, "redirect_uri"))
    except OAuth2Error as error:
        return refuse(None, error)
    context.key_ring().refresh()
    client_authentication.examine_assertion(request, "pushed_authorization_request")
    signed = authorization_request.examine_request_object(request.payload.data)
    with transaction.begin() as changes:
        request.connection = changes.connection
        try:
            answer = authorization_request.push(server, request, signed)
        except OAuth2Error as error:
            error.redirect_uri = None  # the answer is for the backend (§2.3)
            return refuse(request, error)
        changes.commit()
    return Response(json.dumps(answer), status=201, headers=default_json_headers)
