"""APIs at the introspection endpoint: their credentials, and the tokens that are for them.

An API authenticates with its `api_id` and its secret, which have no other use. It may ask about
access tokens whose audience it is; all others are inactive to it (RFC 7662 §4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from sso import clock
from sso.config.client_fields import CLIENT_CREDENTIALS
from sso.crypto import secrets
from sso.flow import narrowing, resources, role_claims
from sso.flow.resources import Apis
from sso.oauth import client_authentication, present_rights, tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.store import apis, exchanges, service_tokens
from sso.store import tokens as store
from sso.store.apis import ResourceServer
from sso.store.exchanges import SubjectToken
from sso.store.service_tokens import ServiceAccessToken
from sso.store.tokens import AccessToken

Found = AccessToken | ServiceAccessToken | SubjectToken

# Of the token itself. It has no email address, and no name of a person.
_SHOWN = ("iss", "sub", "aud", "client_id", "iat", "exp", "jti", "auth_time", "cnf", "act")


@dataclass(frozen=True)
class UsableToken:
    """An access token as it may be used now. `claims` are its own; its digest covers them."""

    claims: Mapping[str, Any]
    scope: str
    dpop_jkt: str | None
    expires_at: datetime
    about_groups: Mapping[str, Any] = field(default_factory=dict)  # claims, for the API that asks

    def is_expired(self) -> bool:
        return self.expires_at <= clock.now()

    def is_revoked(self) -> bool:
        return False  # a token that is revoked is not usable

    def members(self) -> dict[str, Any]:
        """Return the members of the introspection response (RFC 7662 §2.2)."""
        members: dict[str, Any] = {"active": True}
        if self.scope:
            members["scope"] = self.scope
        members |= {name: self.claims[name] for name in _SHOWN if name in self.claims}
        members["token_type"] = tokens.token_type(self.dpop_jkt)
        members |= self.about_groups
        return members


def authenticate(request: ProtocolRequest) -> ResourceServer | None:
    """Return the API whose credentials the request has; `None` if they may be a client's.

    An API with a wrong secret is later refused like an unknown client. Raises `OAuth2Error`.
    """
    if request.examined:
        return None
    credentials = client_authentication.read_credentials(request)
    if not apis.is_api_id(credentials.client_id):
        return None
    api = apis.find_resource_server(request.connection, credentials.client_id)
    if api is None or not secrets.matches(credentials.client_secret, api.secret_digest):
        return None
    return api


def find(connection: Connection, identifier: str, text: str) -> Found | None:
    """Return the access token if it is for this API."""
    jti = tokens.claimed_jti(text)
    if jti is None:
        return None
    token: Found | None
    if tokens.is_of_service(text):
        token = service_tokens.find(connection, jti)
    elif tokens.is_exchanged(text):
        token = exchanges.find(connection, jti)
    else:
        token = store.find_access_token(connection, jti)
    if token is None or token.audience != identifier:
        return None
    if not tokens.is_genuine(text, token.access_digest):
        return None
    return token if present_rights.has_present_issuer(connection, token, text) else None


def usable(
    connection: Connection,
    token: Found,
    text: str,
    api: ResourceServer | None = None,
) -> UsableToken | None:
    """Return the token, reduced to what it may do now; `None` if it may not be used.

    `text` is the genuine token. `api` is the API that asks; it gets the user's groups if its tokens
    have them.
    """
    if isinstance(token, SubjectToken):
        return _usable_exchanged(connection, token, text, api)
    if token.is_expired() or token.is_revoked():
        return None
    client = token.client
    if client.requires_dpop and not token.dpop_jkt:
        return None
    about_groups: Mapping[str, Any] = {}
    claims = tokens.unverified_claims(text) or {}
    issued_at = datetime.fromtimestamp(claims.get("iat", 0) + 1, UTC)  # to the second
    available = resources.existing_at(issued_at, apis.of_client(connection, client))
    if isinstance(token, ServiceAccessToken):
        scope = _scope_of_service(token, available)
    else:
        allowed = narrowing.allowed(client, token.user.groups, token.grant, available)
        scope = None if allowed.refusal else allowed.scope_at(token.audience, token.scope)
        about_groups = _about_groups(api, token.user.groups)
    if scope is None:
        return None
    return UsableToken(claims, scope, token.dpop_jkt, token.expires_at, about_groups)


def _about_groups(api: ResourceServer | None, groups: Sequence[str]) -> dict[str, Any]:
    """Return what an API learns from the groups of a user, as in its tokens."""
    if api is None:
        return {}
    claims = {"groups": list(groups)} if api.includes_groups else {}
    return {**claims, **role_claims.claim(api.roles, api.roles_shape, groups)}


def _usable_exchanged(
    connection: Connection, token: SubjectToken, text: str, api: ResourceServer | None
) -> UsableToken | None:
    """Return an exchanged token as `usable` does."""
    present = present_rights.present(connection, token)
    if present.refusal or not token.is_live():
        return None
    about_groups = _about_groups(api, token.grant.user.groups)
    claims = tokens.unverified_claims(text) or {}
    return UsableToken(claims, present.scope, token.dpop_jkt, token.expires_at, about_groups)


def _scope_of_service(token: ServiceAccessToken, available: Apis) -> str | None:
    if not token.client.check_grant_type(CLIENT_CREDENTIALS):
        return None
    api = available.get(token.audience)
    return narrowing.scope_of_service(token.scope, api) if api else None
