"""The APIs of this server itself that services may use: provisioning and registration.

They are built in; an operator only registers services for them. Their identifiers are the base URL
with a path, so that they change only when the issuer does. The scopes are those of API tokens.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from sso.flow import role_claims
from sso.flow.resources import Api, normalized

PROVISIONING, REGISTRATION = "/scim", "/api"
_SCOPES: Mapping[str, tuple[str, ...]] = {
    PROVISIONING: ("scim:read", "scim:write", "scim:invite", "scim:privileged"),
    REGISTRATION: ("clients:read", "clients:write", "apis:read", "apis:write"),
}
_NAMES = {PROVISIONING: "SCIM", REGISTRATION: "Registration"}


@lru_cache
def every(base_url: str) -> Mapping[str, Api]:
    """Return the APIs by identifier."""
    return {identifier: _api(identifier, path) for path, identifier in _identifiers(base_url)}


def identifier_for(base_url: str, scope: str) -> str:
    """Return the identifier of the API that has a scope."""
    return next(identifier for path, identifier in _identifiers(base_url) if scope in _SCOPES[path])


def _identifiers(base_url: str) -> Iterable[tuple[str, str]]:
    return [(path, normalized(base_url + path)) for path in _SCOPES]


def _api(identifier: str, path: str) -> Api:
    return Api(
        identifier=identifier,
        name=_NAMES[path],
        scopes={scope: scope for scope in _SCOPES[path]},
        translations={},
        groups=frozenset(),
        includes_groups=False,
        roles=(),
        roles_shape=role_claims.LIST,
        access_token_lifetime=None,
        created_at=datetime.min.replace(tzinfo=UTC),
    )
