"""Revocation (RFC 7009) and introspection (RFC 7662): a backend's form about its own token."""

from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import Response

from sso import database
from sso.extensions import db
from sso.oauth import authorization_server, client_authentication
from sso.oauth.request import TOKEN_HINT_FIELDS, form_request


def revoke() -> Response:
    """Revocation: ends an access token or, with a refresh token, the whole grant."""
    return _answer("revocation")


def introspect() -> Response:
    """Introspection: describes a client's own token."""
    return _answer("introspection")


def _answer(name: str) -> Response:
    """The answer of an endpoint that Authlib knows by this name. Commits."""
    server = authorization_server()
    try:
        request = form_request(TOKEN_HINT_FIELDS)
    except OAuth2Error as error:
        refused: Response = server.handle_error_response(None, error)
        return refused
    client_authentication.examine_assertion(request, name)
    request.connection = database.session_connection()
    response: Response = server.create_endpoint_response(name, request)
    if response.status_code == 200:
        db.session.commit()
    return response
