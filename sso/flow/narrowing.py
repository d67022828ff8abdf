"""What an earlier grant may still give.

A grant records what a user approved at one moment. Whenever it is used, it is compared with the
client's registration, the user's groups and the user's consent as they are now, so that narrowing
any of them affects the grants that already exist.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from sso.flow import resources, scopes
from sso.flow.refusals import Cause, describe
from sso.flow.resources import NO_APIS, Api, Apis
from sso.i18n.message import Message

_TWO_FACTORS = "mfa"  # stands in every amr whose acr is 2 (RFC 8176 §2)


class NothingLeft(Exception):
    """A grant gives nothing any more; `description` is what the client is told."""

    def __init__(self, description: Message) -> None:
        super().__init__(description)
        self.description = description


class Registration(Protocol):
    """The part of a client's registration that limits grants."""

    @property
    def scope(self) -> str: ...
    @property
    def groups(self) -> Collection[str]: ...
    @property
    def first_party(self) -> bool: ...
    @property
    def require_mfa(self) -> bool: ...


class Granted(Protocol):
    """A grant, whether its session is live, and the user's consent (`None` without one)."""

    @property
    def scope(self) -> str: ...
    @property
    def claims(self) -> Mapping[str, Iterable[str]]: ...
    @property
    def amr(self) -> str: ...
    @property
    def session_is_live(self) -> bool: ...
    @property
    def consented(self) -> str | None: ...
    @property
    def declined(self) -> str | None: ...


@dataclass(frozen=True)
class Allowed:
    """What may be given now. With a `refusal` nothing may; it is the description for the client."""

    scopes: frozenset[str]
    refusal: Message | None = None

    def scope_of(self, granted: str) -> str:
        """Return the granted scopes that are still allowed, in their order."""
        return " ".join(name for name in scopes.split(granted) if name in self.scopes)

    def scope_at(self, audience: str | None, scope: str) -> str | None:
        """The scopes of a token for this API that are still allowed; `None` if it may not be used.

        Without an audience, the token is for this server. A token without any scope may be used as
        long as anything of its API is allowed.
        """
        if audience is None:
            return self.scope_of(scope) or None
        if not scope:
            return "" if audience in resources.identifiers_in(" ".join(self.scopes)) else None
        names = [resources.qualified(audience, name) for name in scopes.split(scope)]
        usable = [name for name in names if name in self.scopes]
        return " ".join(map(resources.scope_of, usable)) if usable else None

    def claims_of(self, requested: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """Return the claims requested one by one that are still allowed, by place."""
        return within(requested, self.scopes)


def within(
    requested: Mapping[str, Iterable[str]], scope_names: Iterable[str]
) -> dict[str, list[str]]:
    """Return the claims requested one by one, by place, that these scopes cover."""
    if not requested:
        return {}
    covered = frozenset(scopes.claims_of(scope_names))
    return {
        place: [name for name in names if name in covered] for place, names in requested.items()
    }


def allowed(
    client: Registration, groups: Collection[str], grant: Granted, apis: Apis = NO_APIS
) -> Allowed:
    """Return what a grant may give now; `groups` are those of its user, `apis` those of its client.

    Single claims may go beyond the scope of the grant, so all allowed scopes are returned.
    """
    if client.first_party:
        names = _without(client.scope, grant.declined)
    else:
        names = _common(client.scope, grant.consented)
    for api in apis.values():
        if api.admits(groups):
            names |= (
                api.names.difference(scopes.split(grant.declined))
                if client.first_party
                else api.names.intersection(scopes.split(grant.consented))
            )
    return Allowed(names, _refusal(client, groups, grant, names))


# Few different scopes are registered and consented to. The caches here and in `scopes` save 4 % of
# the CPU of userinfo, which compares them each time.
@lru_cache(maxsize=256)
def _without(registered: str, declined: str | None) -> frozenset[str]:
    return frozenset(scopes.split(registered)).difference(scopes.split(declined))


@lru_cache(maxsize=256)
def _common(registered: str, consented: str | None) -> frozenset[str]:
    return frozenset(scopes.split(registered)).intersection(scopes.split(consented))


def what_is_left(
    client: Registration, groups: Collection[str], grant: Granted, apis: Apis = NO_APIS
) -> tuple[str, dict[str, list[str]]]:
    """Return the scope and the single claims that a grant may still give. Raises `NothingLeft`."""
    current = allowed(client, groups, grant, apis)
    scope = current.scope_of(grant.scope)
    if current.refusal or not scope:
        raise NothingLeft(current.refusal or describe(Cause.NOTHING_LEFT))
    return scope, current.claims_of(grant.claims)


def why_not_admitted(
    client: Registration, groups: Collection[str], grant: Granted
) -> Message | None:
    """Return why a client may do nothing for the user of a grant any more, or `None`."""
    if client.groups and not frozenset(client.groups) & frozenset(groups):
        return describe(Cause.NO_LONGER_A_MEMBER)
    if client.require_mfa and _TWO_FACTORS not in grant.amr.split():
        return describe(Cause.ONE_FACTOR)
    return None


def _refusal(
    client: Registration, groups: Collection[str], grant: Granted, names: frozenset[str]
) -> Message | None:
    if refusal := why_not_admitted(client, groups, grant):
        return refusal
    if grant.session_is_live or (scopes.OFFLINE in names and scopes.is_offline(grant.scope)):
        return None
    return describe(Cause.SESSION_ENDED)


def scope_of_service(granted: str, api: Api) -> str | None:
    """Return what a service's token for an API may still do; `None` if it may not be used.

    `api` is as the client may use it now. Its groups are of people, and do not count here.
    """
    names = scopes.split(granted)
    usable = [name for name in names if name in api.scopes]
    return " ".join(usable) if usable or not names else None
