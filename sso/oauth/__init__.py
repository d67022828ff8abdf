"""Authlib, extended: one subclass a file, named by the standard's term."""

from typing import cast

from flask import Flask, current_app

from sso.oauth.authorization_code import AuthorizationCodeGrant
from sso.oauth.authorization_request import ParameterValidation
from sso.oauth.bearer import REALM, BearerTokenValidator, ResourceProtector
from sso.oauth.end_session import EndSessionEndpoint
from sso.oauth.introspection import IntrospectionEndpoint
from sso.oauth.openid import IdentityToken
from sso.oauth.pkce import CodeChallenge
from sso.oauth.refresh_token import RefreshTokenGrant
from sso.oauth.revocation import RevocationEndpoint
from sso.oauth.server import AuthorizationServer
from sso.oauth.userinfo import UserInfoEndpoint


def init_app(app: Flask) -> None:
    """Register every grant, extension and endpoint that this server has."""
    server = AuthorizationServer()
    server.init_app(app)
    identity_token = IdentityToken()
    server.register_grant(
        AuthorizationCodeGrant, [ParameterValidation(), CodeChallenge(), identity_token]
    )
    server.register_grant(RefreshTokenGrant, [identity_token])
    server.register_endpoint(RevocationEndpoint)
    server.register_endpoint(IntrospectionEndpoint)
    server.register_endpoint(EndSessionEndpoint)
    protector = ResourceProtector()
    protector.register_token_validator(BearerTokenValidator(realm=REALM))
    server.register_endpoint(UserInfoEndpoint(resource_protector=protector))
    app.extensions["sso.oauth"] = server


def authorization_server() -> AuthorizationServer:
    """The running application's server."""
    return cast(AuthorizationServer, current_app.extensions["sso.oauth"])
