"""The present rights of a person's access token, whether issued or exchanged (RFC 8693)."""

from dataclasses import dataclass

from sqlalchemy import Connection

from sso import context
from sso.config.client_fields import TOKEN_EXCHANGE
from sso.flow import exchange, narrowing, resources
from sso.flow.narrowing import Allowed
from sso.flow.refusals import Cause, describe
from sso.i18n.message import Message
from sso.oauth import tokens
from sso.store import apis, clients
from sso.store.clients import RegisteredClient
from sso.store.exchanges import SubjectToken
from sso.store.service_tokens import ServiceAccessToken
from sso.store.tokens import AccessToken


@dataclass(frozen=True)
class Present:
    """The scope of a live token now, or the `refusal` to tell the client."""

    scope: str = ""
    refusal: Message | None = None


def present(connection: Connection, token: SubjectToken) -> Present:
    """Return what a token may do now, by its user, its grant, and the clients that act with it."""
    grant, owner = token.grant, token.owner
    groups = grant.user.groups
    rights = _rights_of_owner(connection, token)
    client = owner
    if token.client_id is not None:
        exchangers = _exchangers(connection, token)
        if exchangers is None:
            return Present(refusal=describe(Cause.NO_LONGER_EXCHANGING))
        client = exchangers[0]
        rights = exchange.allowed(client, groups, grant, rights, apis.of_client(connection, client))
    if client.requires_dpop and token.dpop_jkt is None:
        return Present(refusal=describe(Cause.SUBJECT_UNBOUND))
    scope = rights.scope_at(token.audience, token.scope)
    if rights.refusal or scope is None:
        return Present(refusal=rights.refusal or describe(Cause.NOTHING_LEFT))
    return Present(scope)


def has_present_issuer(
    connection: Connection, token: AccessToken | ServiceAccessToken | SubjectToken, text: str
) -> bool:
    """Return whether a genuine token names the issuer that its client, or the one that got it by
    exchange, has now.
    """
    if not context.settings().issuer_aliases:
        return True
    client: RegisteredClient | None
    if not isinstance(token, SubjectToken):
        client = token.client
    elif token.client_id is None:
        client = token.owner
    else:
        client = clients.find_enabled(connection, token.client_id)
    return client is not None and tokens.has_issuer_of(text, client)


def _exchangers(connection: Connection, token: SubjectToken) -> list[RegisteredClient] | None:
    """Return the clients that act with the token; `None` if one of them may not do so any more."""
    exchangers = []
    for client_id in token.actor_ids:
        client = clients.find_enabled(connection, client_id)
        if client is None or not client.check_grant_type(TOKEN_EXCHANGE):
            return None
        exchangers.append(client)
    return exchangers


def _rights_of_owner(connection: Connection, token: SubjectToken) -> Allowed:
    """Return what the grant may still give the client that it belongs to."""
    available = apis.of_client(connection, token.owner)
    available = resources.existing_at(token.grant.created_at, available)
    return narrowing.allowed(token.owner, token.grant.user.groups, token.grant, available)


def by_exchange(connection: Connection, client: RegisteredClient, token: SubjectToken) -> Allowed:
    """Return what the client may get in exchange for a token."""
    grant, groups = token.grant, token.grant.user.groups
    owners = _rights_of_owner(connection, token)
    return exchange.allowed(client, groups, grant, owners, apis.of_client(connection, client))
