"""Authlib, extended: the grants, endpoints and the resource protector of this server."""

from flask import Flask, current_app

from sso.oauth import document_clients, key_sets
from sso.oauth.end_session import EndSessionEndpoint
from sso.oauth.grants.authorization_code import AuthorizationCodeGrant
from sso.oauth.grants.client_credentials import ClientCredentialsGrant
from sso.oauth.grants.device_code import DeviceCodeGrant
from sso.oauth.grants.jwt_bearer import JwtBearerGrant
from sso.oauth.grants.refresh_token import RefreshTokenGrant
from sso.oauth.grants.token_exchange import TokenExchangeGrant
from sso.oauth.server import AuthorizationServer
from sso.oauth.token_management import IntrospectionEndpoint, RevocationEndpoint


def init_app(app: Flask) -> None:
    """Register every grant and endpoint that this server has.

    PKCE and identity tokens are steps of the grants, not extensions: they stand where they happen.
    """
    server = AuthorizationServer()
    server.init_app(app)
    server.register_grant(AuthorizationCodeGrant)
    server.register_grant(RefreshTokenGrant)
    server.register_grant(DeviceCodeGrant)  # early, as Authlib asks them in turn: devices poll
    server.register_grant(TokenExchangeGrant)
    server.register_grant(ClientCredentialsGrant)
    server.register_grant(JwtBearerGrant)
    server.register_endpoint(RevocationEndpoint)
    server.register_endpoint(IntrospectionEndpoint)
    server.register_endpoint(EndSessionEndpoint)
    app.extensions["sso.oauth"] = server
    key_sets.init_app(app)
    document_clients.init_app(app)


def authorization_server() -> AuthorizationServer:
    """Return the running application's server."""
    server: AuthorizationServer = current_app.extensions["sso.oauth"]
    return server
