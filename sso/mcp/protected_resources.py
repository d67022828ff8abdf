"""Protected resource metadata (RFC 9728), and where clients look for it and for ours (RFC 8414).

Clients of the Model Context Protocol try the places in the order of these functions
(specification of 2026-07-28, "Authorization Server Discovery").
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
MAX_CHALLENGE = 4_000  # characters of a WWW-Authenticate header that are read


class ProtectedResource(Protocol):
    """The part of an API that its metadata describes."""

    @property
    def api_id(self) -> str: ...
    @property
    def identifier(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def scopes(self) -> Mapping[str, str]: ...


def document(api: ProtectedResource, issuer: str) -> dict[str, Any]:
    """Return the protected resource metadata of an API (RFC 9728 §2)."""
    scopes = list(api.scopes)
    return {
        "resource": api.identifier,
        "authorization_servers": [issuer],
        **({"scopes_supported": scopes} if scopes else {}),  # no empty arrays (§3.2)
        "bearer_methods_supported": ["header"],
        "resource_name": api.name,
    }


def metadata_url(identifier: str) -> str:
    """Return where the metadata of a resource is: before its path (RFC 9728 §3.1)."""
    origin, tail = _split(identifier)
    return f"{origin}{WELL_KNOWN}{tail}"


def metadata_urls(identifier: str) -> tuple[str, ...]:
    """Return both places where clients look that were told none: with the path, and at the root."""
    origin, _ = _split(identifier)
    return tuple(dict.fromkeys((metadata_url(identifier), f"{origin}{WELL_KNOWN}")))


def authorization_server_urls(issuer: str) -> tuple[str, ...]:
    """Return the places where clients look for the metadata of an issuer, in their order."""
    origin, path = _split(issuer)
    appended = f"{issuer.rstrip('/')}{_OPENID}"
    places = (f"{origin}{_AUTHORIZATION_SERVER}{path}", f"{origin}{_OPENID}{path}", appended)
    return tuple(dict.fromkeys(places))


def _split(url: str) -> tuple[str, str]:
    """Split a URL into its origin and the rest; a path that is only a slash is left out."""
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    path = "" if parts.path == "/" else parts.path
    return f"{parts.scheme}://{parts.netloc}", f"{path}{query}"


def origin(url: str) -> str:
    """Return scheme, host and port of a URL, for comparison. Raises `ValueError`."""
    parts = urlsplit(url)
    default = {"https": 443, "http": 80}.get(parts.scheme)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{parts.port or default}"


@dataclass(frozen=True)
class Challenge:
    """One challenge of a `WWW-Authenticate` header (RFC 9110 §11.6.1); names in lower case."""

    scheme: str
    parameters: Mapping[str, str]


_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # noqa: S105 (no secret)
_PARAMETER = re.compile(rf'({_TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_TOKEN}))')
_SCHEME = re.compile(rf"({_TOKEN})(?=[ \t,]|$)")


def challenges(header: str) -> list[Challenge]:
    """Parse a `WWW-Authenticate` header. What cannot be parsed ends the list."""
    return list(_challenges(header[:MAX_CHALLENGE]))


def _challenges(header: str) -> Iterator[Challenge]:
    position, scheme, parameters = 0, "", dict[str, str]()
    while position < len(header):
        if header[position] in " \t,":
            position += 1
        elif match := _PARAMETER.match(header, position):
            name, quoted, plain = match.groups()
            value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(name.lower(), value)
            position = match.end()
        elif match := _SCHEME.match(header, position):
            if scheme:
                yield Challenge(scheme, parameters)
            scheme, parameters, position = match[1].lower(), {}, match.end()
        else:
            break
    if scheme:
        yield Challenge(scheme, parameters)
