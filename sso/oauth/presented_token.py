"""A token that a client presents to be revoked or looked at: which row it is, if it is its own."""

from datetime import datetime
from typing import NamedTuple

from authlib.oauth2.rfc6749.errors import InvalidRequestError

from sso import clock
from sso.audit.events import Event
from sso.crypto import digests
from sso.models import Client, Token
from sso.oauth import access_tokens
from sso.oauth.request import ProtocolRequest
from sso.oauth.token_response import family_ends_at
from sso.ratelimit import refusals
from sso.store import tokens


class Presented(NamedTuple):
    """A row, and as which of its two tokens it was presented; `scope`: what it may do by now."""

    row: Token
    is_refresh: bool
    scope: str = ""

    @property
    def expires_at(self) -> datetime:
        """A refresh token lives no longer than its family."""
        row = self.row
        if not self.is_refresh or row.refresh_expires_at is None:
            return row.expires_at
        return min(row.refresh_expires_at, family_ends_at(row.grant.created_at))

    def is_expired(self) -> bool:
        return self.expires_at <= clock.now()

    def is_revoked(self) -> bool:
        if self.is_refresh:
            return self.row.refresh_used_at is not None or self.row.grant.ended_at is not None
        return self.row.is_revoked()


def find(token: str, client: Client) -> Presented | None:
    """The client's own token, of either kind, whatever its hint said."""
    if token.startswith(digests.REFRESH_TOKEN):
        row = tokens.find_by_refresh_digest(digests.digest(token))
    else:
        jti = access_tokens.claimed_jti(token)
        row = tokens.find_by_jti(jti) if jti else None
        if row and not access_tokens.is_genuine(token, row.access_digest):
            return None
    if row is None or not row.check_client(client):
        return None
    return Presented(row, token.startswith(digests.REFRESH_TOKEN))


class OwnTokens:
    """Mix into an Authlib token endpoint: a client meets its own tokens alone."""

    ENDPOINT_NAME: str

    def authenticate_token(self, request: ProtocolRequest, client: Client) -> Presented | None:
        """The client's own token; an unknown and a foreign one are the same (RFC 7009 §2.2)."""
        # A wrong token_type_hint is ignored (RFC 7009 §2.1); Authlib answers it with 401.
        if "token" not in request.form:
            raise InvalidRequestError("The parameter 'token' is missing.")
        found = find(request.form["token"], client)
        if found is None:
            event = Event.TOKEN_REFUSED
            refusals.note(event, budget=event, at=self.ENDPOINT_NAME, client=client.client_id)
        return found
