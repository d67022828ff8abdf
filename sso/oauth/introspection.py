"""Introspection (RFC 7662)."""

from typing import Any

from authlib.oauth2.rfc7662 import IntrospectionEndpoint as AuthlibIntrospectionEndpoint

from sso import clock, current
from sso.models import Client
from sso.oauth import client_authentication, presented_token
from sso.oauth.request import ProtocolRequest
from sso.store import grants


class IntrospectionEndpoint(presented_token.OwnTokens, AuthlibIntrospectionEndpoint):
    """A client asks about its own tokens; all others are inactive to it (§4)."""

    CLIENT_AUTH_METHODS = client_authentication.METHODS

    def authenticate_token(
        self, request: ProtocolRequest, client: Client
    ) -> presented_token.Presented | None:
        found = super().authenticate_token(request, client)
        if not found or not found.is_refresh:
            return found
        if grants.find_live(found.row.grant_id, client.client_id) is None:
            return None
        return found

    def introspect_token(self, token: presented_token.Presented) -> dict[str, Any]:
        """The members of §2.2."""
        row, grant = token.row, token.row.grant
        expires_at = row.refresh_expires_at if token.is_refresh else row.expires_at
        members: dict[str, Any] = {
            "active": True,
            "scope": grant.scope if token.is_refresh else row.scope,
            "client_id": grant.client_id,
            "sub": str(grant.user_id),
            "iss": current.settings().issuer,
            "iat": clock.timestamp(row.issued_at),
            "exp": clock.timestamp(expires_at or row.expires_at),
        }
        if not token.is_refresh:
            members |= {"token_type": "Bearer", "jti": row.jti, "aud": members["iss"]}
        return members
