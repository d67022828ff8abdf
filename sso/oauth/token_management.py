"""Revocation (RFC 7009) and introspection (RFC 7662): a client presents a token of its own.

An API introspects the tokens that are for it (see `resource_servers`).
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from authlib.oauth2.rfc6749.errors import InvalidRequestError
from authlib.oauth2.rfc7009 import RevocationEndpoint as AuthlibRevocationEndpoint
from authlib.oauth2.rfc7662 import IntrospectionEndpoint as AuthlibIntrospectionEndpoint

from sso import audit, clock, context
from sso.audit.events import Event
from sso.crypto import secrets
from sso.extensions import db
from sso.flow import exchange, narrowing, resources, scopes, token_claims
from sso.flow.refusals import Cause, describe
from sso.models import Token
from sso.oauth import client_authentication, present_rights, resource_servers, tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.resource_servers import UsableToken
from sso.ratelimit import refusals
from sso.store import apis as stored_apis
from sso.store import exchanges, grants, service_tokens
from sso.store import tokens as store
from sso.store.apis import ResourceServer
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.service_tokens import ServiceAccessToken


@dataclass(frozen=True)
class PresentedToken:
    """A row of `client`, and as which of its two tokens it was presented.

    `scope`: what it may do by now; `subject`: what the client knows its user by.
    """

    row: Token
    is_refresh: bool
    client: RegisteredClient
    scope: str = ""
    subject: str = ""

    @property
    def expires_at(self) -> datetime:
        """A refresh token lives no longer than its family."""
        row = self.row
        if not self.is_refresh or row.refresh_expires_at is None:
            return row.expires_at
        return min(row.refresh_expires_at, tokens.family_ends_at(row.grant.created_at))

    def is_expired(self) -> bool:
        return self.expires_at <= clock.now()

    def is_revoked(self) -> bool:
        if self.is_refresh:
            return self.row.refresh_used_at is not None or self.row.grant.ended_at is not None
        return self.row.is_revoked()


OwnToken = PresentedToken | ServiceAccessToken


def find(request: ProtocolRequest, client: RegisteredClient) -> OwnToken | None:
    """Return the client's own token, of whatever kind, whatever the hint is."""
    token = _token_of(request)
    is_refresh = token.startswith(secrets.REFRESH_TOKEN)
    if is_refresh:
        row = store.find_by_refresh_digest(secrets.digest(token))
    else:
        jti = tokens.claimed_jti(token)
        if jti and tokens.is_of_service(token):
            return _find_of_service(request, client, jti)
        row = store.find_by_jti(jti) if jti else None
        if row and not (
            tokens.is_genuine(token, row.access_digest) and tokens.has_issuer_of(token, client)
        ):
            return None
    if row is None or not row.check_client(client):
        return None
    return PresentedToken(row, is_refresh, client)


def _find_of_service(
    request: ProtocolRequest, client: RegisteredClient, jti: str
) -> ServiceAccessToken | None:
    token = service_tokens.find(request.connection, jti)
    if token is None or token.client.client_id != client.client_id:
        return None
    text = request.form["token"]
    is_genuine = tokens.is_genuine(text, token.access_digest)
    return token if is_genuine and tokens.has_issuer_of(text, client) else None


def _token_of(request: ProtocolRequest) -> str:
    # A wrong token_type_hint is ignored (RFC 7009 §2.1); Authlib answers it with 401.
    if "token" not in request.form:
        raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name="token"))
    return request.form["token"]


def _subject(grant: LiveGrant, client: RegisteredClient) -> str:
    return token_claims.subject(grant.user, client.subject_attribute, client.client_id)


class OwnTokens:
    """Mix into an Authlib token endpoint: a client meets its own tokens alone."""

    ENDPOINT_NAME: str
    CLIENT_AUTH_METHODS = client_authentication.METHODS

    def own_token(self, request: ProtocolRequest, client: RegisteredClient) -> OwnToken | None:
        """Return the client's own token; a foreign one is treated as unknown (RFC 7009 §2.2)."""
        presented = find(request, client)
        if presented is None:
            # Anyone can name a public client.
            self.record_foreign(is_proven=not client.is_public, client=client.client_id)
        return presented

    def record_foreign(self, *, is_proven: bool, **whose: Any) -> None:
        """Record that the token is not one that may be asked about here."""
        event = Event.TOKEN_REFUSED
        refusals.record(event, budget=event, is_proven=is_proven, at=self.ENDPOINT_NAME, **whose)


class RevocationEndpoint(OwnTokens, AuthlibRevocationEndpoint):
    """An access token ends alone; a refresh token ends its grant (RFC 7009 §2.1)."""

    def authenticate_token(
        self, request: ProtocolRequest, client: RegisteredClient
    ) -> OwnToken | None:
        return self.own_token(request, client)

    def revoke_token(self, token: OwnToken, request: ProtocolRequest) -> None:
        if isinstance(token, ServiceAccessToken):
            self._revoke_of_service(token)
            return
        row = token.row
        if row.grant.ended_at or (row.revoked_at and not token.is_refresh):
            return  # already; anyone with the token could repeat this without end
        if token.is_refresh:
            grants.end_one(db.session, row.grant_id, "revoked")
        else:
            store.revoke_access(row)
        audit.event(
            Event.TOKEN_REVOKED,
            user=row.grant.user_id,
            client=request.client.client_id,
            grant=row.grant_id,
        )

    def _revoke_of_service(self, token: ServiceAccessToken) -> None:
        if not token.is_revoked():
            service_tokens.revoke(token)
            audit.event(Event.TOKEN_REVOKED, client=token.client.client_id, audience=token.audience)


class IntrospectionEndpoint(OwnTokens, AuthlibIntrospectionEndpoint):
    """A client asks about its own tokens; all others are inactive to it (RFC 7662 §4).

    A public client cannot ask: the endpoint needs authentication (§2.1). An API asks about the
    tokens that are for it.
    """

    CLIENT_AUTH_METHODS = client_authentication.CONFIDENTIAL_METHODS

    def authenticate_endpoint_client(
        self, request: ProtocolRequest
    ) -> RegisteredClient | ResourceServer:
        request.resource_server = resource_servers.authenticate(request)
        client: RegisteredClient | ResourceServer = (
            request.resource_server or super().authenticate_endpoint_client(request)
        )
        return client

    def authenticate_token(
        self, request: ProtocolRequest, client: RegisteredClient
    ) -> PresentedToken | UsableToken | None:
        if request.resource_server:
            return self._token_for(request, request.resource_server)
        presented = self.own_token(request, client)
        if isinstance(presented, ServiceAccessToken):
            return resource_servers.usable(request.connection, presented, request.form["token"])
        if presented is None:
            return None
        if presented.row.client_id is not None:
            return self._exchanged(request, presented)
        if client.requires_dpop and not (presented.is_refresh or presented.row.dpop_jkt):
            return None
        live_grant = grants.find_live_grant(
            request.connection, presented.row.grant_id, client.client_id
        )
        if live_grant is None:
            return None
        apis = stored_apis.of_client(request.connection, client)
        apis = resources.existing_at(live_grant.created_at, apis)
        allowed = narrowing.allowed(client, live_grant.user.groups, live_grant, apis)
        if presented.is_refresh:
            scope = allowed.scope_of(live_grant.scope) or None
        else:
            scope = allowed.scope_at(presented.row.audience, presented.row.scope)
        if scope is None or allowed.refusal:
            return None
        names = map(resources.scope_of, scopes.split(scope))
        return replace(
            presented,
            scope=" ".join(dict.fromkeys(filter(None, names))),
            subject=_subject(live_grant, client),
        )

    def _exchanged(
        self, request: ProtocolRequest, presented: PresentedToken
    ) -> PresentedToken | None:
        """Return a token that the client got by exchange, with what it may do now."""
        token = exchanges.find(request.connection, presented.row.jti)
        present = present_rights.present(request.connection, token) if token else None
        if token is None or present is None or present.refusal:
            return None
        subject = _subject(token.grant, presented.client)
        return replace(presented, scope=present.scope, subject=subject)

    def _token_for(self, request: ProtocolRequest, api: ResourceServer) -> UsableToken | None:
        """Return the token if it is for this API; an unknown and a foreign one are the same."""
        text = _token_of(request)
        token = resource_servers.find(request.connection, api.identifier, text)
        if token is None:
            self.record_foreign(is_proven=True, api=api.identifier)
            return None
        return resource_servers.usable(request.connection, token, text, api)

    def introspect_token(self, token: PresentedToken | UsableToken) -> dict[str, Any]:
        """Return the members of RFC 7662 §2.2."""
        if isinstance(token, UsableToken):
            return token.members()
        row, grant = token.row, token.row.grant
        members: dict[str, Any] = {
            "active": True,
            "scope": token.scope,
            "client_id": row.client_id or grant.client_id,
            "sub": token.subject,
            "iss": context.settings().issuer_of(token.client),
            "iat": clock.timestamp(row.issued_at),
            "exp": clock.timestamp(token.expires_at),
        }
        if not token.is_refresh:
            members |= {
                "token_type": tokens.token_type(row.dpop_jkt),
                "jti": row.jti,
                "aud": row.audience or members["iss"],
            }
            if row.dpop_jkt:
                members["cnf"] = {"jkt": row.dpop_jkt}
            if row.actors:
                members["act"] = exchange.act_claim(row.actors.split())
        return members
