"""What revoke and introspect share: a backend's form, Authlib's endpoint, one commit."""

from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import Response

from sso import database
from sso.extensions import db
from sso.oauth import authorization_server
from sso.oauth.request import TOKEN_HINT_FIELDS, form_request


def answer(name: str) -> Response:
    """The answer of an endpoint that Authlib knows by this name."""
    server = authorization_server()
    try:
        request = form_request(TOKEN_HINT_FIELDS)
    except OAuth2Error as error:
        refused: Response = server.handle_error_response(None, error)
        return refused
    request.connection = database.session_connection()
    response: Response = server.create_endpoint_response(name, request)
    if response.status_code == 200:
        db.session.commit()
    return response
