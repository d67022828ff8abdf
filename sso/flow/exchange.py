"""Token exchange (RFC 8693): who may exchange which token, for which API and scope.

A user approved what the first client may do. What a backend may do on the user's behalf at the next
API is the decision of the operator, who registers the backend for it.
"""

from collections.abc import Collection
from typing import Any, Protocol

from sso.flow import narrowing, resources, scopes
from sso.flow.narrowing import Allowed, Granted, Registration
from sso.flow.refusals import Cause, describe
from sso.flow.resources import Apis, InvalidTarget

MOST_ACTORS = 3


class TooManyActors(ValueError):
    """The chain of clients that act with a token is too long."""

    def __init__(self) -> None:
        self.description = describe(Cause.TOO_MANY_ACTORS)
        super().__init__(self.description)


class Exchanger(Registration, Protocol):
    """The part of a client's registration that decides about its exchanges."""

    @property
    def client_id(self) -> str: ...
    @property
    def exchange_from(self) -> Collection[str]: ...


class OwnedGrant(Granted, Protocol):
    """A grant, and the client that it belongs to."""

    @property
    def client_id(self) -> str: ...


def is_party(client: Exchanger, issued_to: str, audience: str | None) -> bool:
    """Return whether a client may exchange a token: its own, or one for an API that it acts as."""
    return client.client_id == issued_to or audience in client.exchange_from


def target(
    resource: str | None, audience: str | None, default: str | None, apis: Apis, issuer: str
) -> str:
    """Return the identifier of the API that a token is exchanged for. Raises `InvalidTarget`.

    The issuer is refused: userinfo is for the application that the user signed in to.
    """
    named = [name for name in (resource, audience) if name] or [default or ""]
    identifiers = {resources.normalized(name) for name in named}
    if len(identifiers) > 1:
        raise InvalidTarget(Cause.TWO_TARGETS, named[0])
    identifier = identifiers.pop()
    if identifier in ("", resources.normalized(issuer)):
        raise InvalidTarget(Cause.NO_TARGET, identifier)
    if identifier not in apis:
        raise InvalidTarget(Cause.UNKNOWN_RESOURCE, named[0])
    return identifier


def allowed(
    client: Exchanger,
    groups: Collection[str],
    grant: OwnedGrant,
    owners: Allowed,
    apis: Apis,
) -> Allowed:
    """Return what a token that a client got by exchange may give now.

    `owners`: what the grant may still give to the client that it belongs to. `apis`: those of the
    client. In the client's own grant, declined scopes stay declined.
    """
    names: set[str] = set()
    for api in apis.values():
        if api.admits(groups):
            names |= api.names
    if grant.client_id == client.client_id:
        names.difference_update(scopes.split(grant.declined))
    refusal = owners.refusal or narrowing.why_not_admitted(client, groups, grant)
    return Allowed(frozenset(names), refusal)


def available(
    rights: Allowed,
    identifier: str,
    apis: Apis,
    *,
    granted: str,
    source_scope: str,
    source_names: Collection[str],
) -> list[str] | None:
    """Return the scopes that a token for an API may get; `None` if it may not be used at all.

    If the user approved this API in the same grant, whose scope is `granted`, it gets no more than
    that. If the API of the subject token has a scope of the same name (`source_names`), the new
    token gets the scope only if the subject token has it.
    """
    names = set(apis[identifier].scopes)
    if identifier in resources.identifiers_in(granted):
        names.intersection_update(scopes.split(resources.at(identifier, granted)))
    names -= set(source_names).difference(scopes.split(source_scope))
    in_order = " ".join(name for name in apis[identifier].scopes if name in names)
    scope = rights.scope_at(identifier, in_order)
    return None if scope is None else scope.split()


def actors(client: Exchanger, before: Collection[str]) -> list[str]:
    """Return the clients that act with the new token, the newest first. Raises `TooManyActors`."""
    chain = [client.client_id, *before]
    if len(chain) > MOST_ACTORS:
        raise TooManyActors
    return chain


def act_claim(chain: Collection[str]) -> dict[str, Any]:
    """Return the claim `act` (RFC 8693 §4.1): the current actor, and within it the one before."""
    claim: dict[str, Any] = {}
    for client_id in reversed(list(chain)):
        claim = {"sub": client_id, **({"act": claim} if claim else {})}
    return claim
