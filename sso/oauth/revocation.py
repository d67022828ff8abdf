"""Revocation (RFC 7009)."""

from authlib.oauth2.rfc7009 import RevocationEndpoint as AuthlibRevocationEndpoint

from sso import audit
from sso.audit.events import Event
from sso.models import Token
from sso.oauth import client_authentication, presented_token
from sso.oauth.request import ProtocolRequest
from sso.store import grants, tokens


class RevocationEndpoint(presented_token.OwnTokens, AuthlibRevocationEndpoint):
    """An access token ends alone; a refresh token ends its grant (§2.1)."""

    CLIENT_AUTH_METHODS = client_authentication.METHODS

    def revoke_token(self, token: presented_token.Presented, request: ProtocolRequest) -> None:
        row: Token = token.row
        if token.is_refresh:
            grants.end_one(row.grant_id, "revoked")
        else:
            tokens.revoke_access(row)
        audit.event(
            Event.TOKEN_REVOKED,
            user=row.grant.user_id,
            client=request.client.client_id,
            grant=row.grant_id,
        )
