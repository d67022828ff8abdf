"""Userinfo (OIDC Core §5.3, RFC 6750)."""

from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import Response

from sso.oauth import authorization_server, bearer, refusal
from sso.web import errors


def userinfo() -> Response:
    """The user's profile for a bearer access token."""
    server = authorization_server()
    try:
        return server.handle_response(*server.endpoint("userinfo")(None))
    except OAuth2Error as error:
        refusal.note_access_token(error)
        return errors.as_json(
            error.error,
            error.get_error_description(),
            error.status_code,
            {"WWW-Authenticate": bearer.challenge(error)} if error.status_code != 400 else None,
        )
