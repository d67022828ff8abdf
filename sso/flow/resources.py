"""APIs as resources (RFC 8707): which one a token is for, and the scopes that it gets there.

Grants and consents name a scope of an API together with the API's identifier:
`https://api.example.com#read`. An identifier has no fragment, so such a name is never that of a
scope of this server. `https://api.example.com#` is access to the API without any scope.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Protocol
from urllib.parse import urlsplit

from sso.flow import scopes
from sso.flow.refusals import Cause, describe
from sso.i18n.message import Message

MAX_RESOURCES = 10  # in one request
MAX_IDENTIFIER = 200  # characters
_SEPARATOR = "#"
_URI = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;%=]{1,255}\Z")


class InvalidTarget(ValueError):
    """A resource that no token can be for (`invalid_target`, RFC 8707 §2); `str()` describes it."""

    def __init__(self, cause: Cause, resource: str) -> None:
        self.description: Message = describe(cause, resource=readable(resource))
        super().__init__(self.description)


@dataclass(frozen=True, eq=False)
class Api:
    """An enabled API, reduced to what one client may use.

    `scopes` has the descriptions of the scopes that the client may request.
    """

    identifier: str
    name: str
    scopes: Mapping[str, str]
    translations: Mapping[str, Mapping[str, str]]
    groups: frozenset[str]
    includes_groups: bool
    roles: Sequence[str]
    roles_shape: str
    access_token_lifetime: int | None  # seconds
    created_at: datetime

    @cached_property
    def names(self) -> frozenset[str]:
        """The names in a grant that belong to this API."""
        return frozenset(qualified(self.identifier, scope) for scope in ("", *self.scopes))

    def admits(self, groups: Collection[str]) -> bool:
        """Return whether a user in these groups may use the API."""
        return not self.groups or not self.groups.isdisjoint(groups)


class Described(Protocol):
    """The part of an API that describes its scopes."""

    @property
    def scopes(self) -> Mapping[str, str]: ...
    @property
    def translations(self) -> Mapping[str, Mapping[str, str]]: ...


def description(api: Described, scope: str, language: str) -> str:
    """Return the description of a scope for people, in this language if there is one."""
    translated = api.translations.get(language, {}).get(scope)
    return translated or api.scopes.get(scope) or scope


Apis = Mapping[str, Api]
NO_APIS: Apis = {}


def existing_at(moment: datetime, apis: Apis) -> Apis:
    """Return the APIs that existed at a moment; a later one may reuse an identifier."""
    return {identifier: api for identifier, api in apis.items() if api.created_at <= moment}


def qualified(identifier: str, scope: str) -> str:
    """Return the name that a scope of an API has in grants and consents."""
    return f"{identifier}{_SEPARATOR}{scope}"


def is_of_api(name: str) -> bool:
    """Return whether a name in a grant is that of an API's scope."""
    return _SEPARATOR in name


def api_of(name: str) -> str:
    """Return the identifier in a qualified name."""
    return name.partition(_SEPARATOR)[0]


def scope_of(name: str) -> str:
    """Return the scope in a name, qualified or not; "" for access without any."""
    return name.rpartition(_SEPARATOR)[2]


def identifiers_in(scope: str) -> tuple[str, ...]:
    """Return the APIs in the scope of a grant, in their order."""
    if _SEPARATOR not in scope:
        return ()
    names = scopes.split(scope)
    return tuple(dict.fromkeys(api_of(name) for name in names if is_of_api(name)))


@lru_cache(maxsize=256)
def at(audience: str | None, scope: str) -> str:
    """Return the part of a grant's scope that is for this API; `None`: for this server."""
    if audience is None and _SEPARATOR not in scope:
        return scope
    names = scopes.split(scope)
    if audience is None:
        return " ".join(name for name in names if not is_of_api(name))
    own = (scope_of(name) for name in names if is_of_api(name) and api_of(name) == audience)
    return " ".join(name for name in own if name)


def readable(resource: str) -> str:
    """Return a resource for an error description, which cannot contain every character."""
    return resource if _URI.match(resource) else "(unreadable)"


def normalized(resource: str) -> str:
    """Return a resource indicator in the form in which identifiers are compared.

    Scheme and host are in lower case, and a path that is only a slash is left out. Everything else
    is compared character by character. A text with characters beyond ASCII is no URI and stays as
    it is: some of these characters have ASCII letters as their lower case.
    """
    if not resource.isascii():
        return resource
    scheme, separator, rest = resource.partition("://")
    if not separator:
        scheme, separator, rest = resource.partition(":")
        return scheme.lower() + separator + rest
    host, slash, path = rest.partition("/")
    if "?" in host:
        host, slash, path = rest.partition("?")
    tail = "" if slash == "/" and not path else slash + path
    return f"{scheme.lower()}://{host.lower()}{tail}"


def identifier_error(text: str) -> Message | None:
    """Return why a text cannot identify an API, or `None`: an https URL or a URN is needed.

    http is for this machine alone.
    """
    if len(text) > MAX_IDENTIFIER:
        return Message("it is longer than %(most)d characters", most=MAX_IDENTIFIER)
    if "#" in text:
        return Message("it has a fragment")
    if "=" in text or not _URI.match(text):
        return Message("it has a character that an identifier may not have")
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return Message("it is not a valid URL")
    if parts.scheme == "urn":
        is_complete = re.match(r"urn:[a-z0-9][a-z0-9-]{0,31}:.", text, re.IGNORECASE)
        return None if is_complete else Message("it is not a complete URN")
    if "@" in parts.netloc:
        return Message("it carries a user name, which can disguise the host")
    is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_local)):
        return Message("it is neither an https URL nor a URN (http is for this machine alone)")
    return None


def requested(text: str | None, default: str | None, apis: Apis, issuer: str) -> tuple[str, ...]:
    """Return the APIs that an authorization request is for. Raises `InvalidTarget`.

    `text` has the resource indicators, separated by spaces. The issuer is no API: it stands for
    this server's userinfo.
    """
    named = scopes.split(text) or ((default,) if default else ())
    if len(named) > MAX_RESOURCES:
        raise InvalidTarget(Cause.TOO_MANY_RESOURCES, named[0])
    identifiers = dict.fromkeys(_known(name, apis, issuer) for name in named)
    return tuple(identifier for identifier in identifiers if identifier is not None)


def _known(resource: str, apis: Apis, issuer: str) -> str | None:
    """Return the identifier of an API of the client; `None` for the issuer."""
    identifier = normalized(resource)
    if identifier == normalized(issuer):
        return None
    if identifier not in apis:
        raise InvalidTarget(Cause.UNKNOWN_RESOURCE, resource)
    return identifier


def grantable(requested_scope: str | None, identifiers: Iterable[str], apis: Apis) -> list[str]:
    """Return the names for a grant: the requested scopes of these APIs, by default all scopes.

    If no scope of an API is requested, the grant gives access to the API without any scope.
    """
    requested_names = scopes.split(requested_scope)
    names = []
    for identifier in identifiers:
        available = apis[identifier].scopes
        chosen = [scope for scope in requested_names if scope in available]
        if not requested_names:
            chosen = list(available)
        names += [qualified(identifier, scope) for scope in chosen or [""]]
    return names


def audience(
    resource: str | None, granted: str, allowed: str, apis: Apis, issuer: str
) -> str | None:
    """Return the API that a token is for; `None`: this server. Raises `InvalidTarget`.

    `granted` is the scope of the grant, `allowed` what is left of it. Without a resource, the
    token is for the first API of the grant, and for no other if that API was withdrawn.
    """
    identifiers = identifiers_in(granted)
    if resource is None:
        identifier = identifiers[0] if identifiers else None
    else:
        identifier = normalized(resource)
        if identifier == normalized(issuer):
            identifier = None
            if not at(None, granted):
                raise InvalidTarget(Cause.RESOURCE_NOT_APPROVED, resource)
        elif identifier not in identifiers:
            is_known = identifier in apis
            cause = Cause.RESOURCE_NOT_APPROVED if is_known else Cause.UNKNOWN_RESOURCE
            raise InvalidTarget(cause, resource)
    if identifier is not None and identifier not in identifiers_in(allowed):
        raise InvalidTarget(Cause.RESOURCE_WITHDRAWN, identifier)
    return identifier


def of_service(resource: str | None, default: str | None, apis: Apis, issuer: str) -> Api:
    """Return the API that a token without a person is for. Raises `InvalidTarget`.

    The issuer is refused: userinfo is about people.
    """
    named = resource if resource is not None else default
    identifier = _known(named, apis, issuer) if named is not None else None
    if identifier is None:
        raise InvalidTarget(Cause.NO_API_OF_SERVICE, named or "")
    return apis[identifier]


def scope_of_service(requested_scope: str | None, api: Api) -> str | None:
    """Return the requested scopes that a service may have, by default all; `None`: it has none."""
    requested = scopes.split(requested_scope)
    names = [name for name in requested if name in api.scopes] if requested else api.scopes
    return " ".join(names) if names or not requested else None
