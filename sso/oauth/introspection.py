"""Introspection (RFC 7662)."""

from typing import Any

from authlib.oauth2.rfc7662 import IntrospectionEndpoint as AuthlibIntrospectionEndpoint

from sso import clock, context
from sso.flow import narrowing
from sso.models import Client
from sso.oauth import client_authentication, presented_token
from sso.oauth.request import ProtocolRequest
from sso.store import live_grants


class IntrospectionEndpoint(presented_token.OwnTokens, AuthlibIntrospectionEndpoint):
    """A client asks about its own tokens; all others are inactive to it (§4)."""

    CLIENT_AUTH_METHODS = client_authentication.METHODS

    def authenticate_token(
        self, request: ProtocolRequest, client: Client
    ) -> presented_token.Presented | None:
        found = super().authenticate_token(request, client)
        approval = found and live_grants.find(found.row.grant_id, client.client_id)
        if not found or not approval:
            return None
        allowed = narrowing.allowed(client, approval.user.groups, approval)
        scope = allowed.scope_of(approval.scope if found.is_refresh else found.row.scope)
        return found._replace(scope=scope) if scope and not allowed.refusal else None

    def introspect_token(self, token: presented_token.Presented) -> dict[str, Any]:
        """The members of §2.2."""
        row, grant = token.row, token.row.grant
        members: dict[str, Any] = {
            "active": True,
            "scope": token.scope,
            "client_id": grant.client_id,
            "sub": str(grant.user_id),
            "iss": context.settings().issuer,
            "iat": clock.timestamp(row.issued_at),
            "exp": clock.timestamp(token.expires_at),
        }
        if not token.is_refresh:
            members |= {"token_type": "Bearer", "jti": row.jti, "aud": members["iss"]}
        return members
