"""The issuers of earlier servers, under which this server answers as well (SSO_ISSUER_ALIASES).

An issuer names a server in its tokens (OIDC Core §1.2), and its addresses are where applications
look for it. Each known server has a form of addresses. These rules hold:

- The issuer of a client counts, never the path of a request. A client has one issuer.
- A client is answered only at the addresses of its own issuer. So what comes from the addresses of
  an issuer always names that issuer, as its metadata does (RFC 9207, OIDC Discovery §4.3).
- This server signs only for its own issuer and those of the setting, whatever a client says.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from sso.config.urls import ENDPOINTS, is_loopback, strict_url_error

MOST = 500
ACCOUNT, METADATA = "account", "metadata"
# OIDC Discovery §4, and RFC 8414 §3.1, where the well-known part stands before the path.
_WELL_KNOWN = (
    "{issuer}/.well-known/openid-configuration",
    "/.well-known/oauth-authorization-server{issuer}",
    "/.well-known/openid-configuration{issuer}",
)
_OPENID_CONNECT = "{issuer}/protocol/openid-connect"
_OF_AUTHENTIK = "{root}/application/o"


class Form(NamedTuple):
    """The addresses of a kind of server.

    `paths`: where its endpoints are, by their names in `urls.ENDPOINTS`; what it lacks is missing.
    The first path of each is published. `{issuer}` is the path of the issuer, and `{root}` the part
    of it that `shape` calls so.
    """

    shape: re.Pattern[str]
    example: str
    paths: Mapping[str, tuple[str, ...]]


FORMS: Mapping[str, Form] = {
    "keycloak": Form(
        re.compile(r"(?P<root>.*)/realms/[^/]+"),
        "https://login.example.com/realms/main",
        {
            "authorization": (f"{_OPENID_CONNECT}/auth",),
            "pushed_authorization_request": (f"{_OPENID_CONNECT}/ext/par/request",),
            "device_authorization": (f"{_OPENID_CONNECT}/auth/device",),
            "token": (f"{_OPENID_CONNECT}/token",),
            "userinfo": (f"{_OPENID_CONNECT}/userinfo",),
            "jwks": (f"{_OPENID_CONNECT}/certs",),
            "revocation": (f"{_OPENID_CONNECT}/revoke",),
            "introspection": (f"{_OPENID_CONNECT}/token/introspect",),
            "end_session": (f"{_OPENID_CONNECT}/logout",),
            ACCOUNT: ("{issuer}/account", "{issuer}/account/"),
        },
    ),
    "authentik": Form(
        re.compile(r"(?P<root>.*)/application/o/[^/]+/"),
        "https://auth.example.com/application/o/wiki/",
        {
            "authorization": (f"{_OF_AUTHENTIK}/authorize/",),
            "device_authorization": (f"{_OF_AUTHENTIK}/device/",),
            "token": (f"{_OF_AUTHENTIK}/token/",),
            "userinfo": (f"{_OF_AUTHENTIK}/userinfo/",),
            "jwks": ("{issuer}/jwks/",),
            "revocation": (f"{_OF_AUTHENTIK}/revoke/",),
            "introspection": (f"{_OF_AUTHENTIK}/introspect/",),
            "end_session": ("{issuer}/end-session/",),
            ACCOUNT: ("{root}/if/user/",),
        },
    ),
    "authelia": Form(
        re.compile(r"(?P<root>(?:/.*[^/])?)"),
        "https://auth.example.com",
        {
            "authorization": ("{issuer}/api/oidc/authorization",),
            "pushed_authorization_request": ("{issuer}/api/oidc/pushed-authorization-request",),
            "device_authorization": ("{issuer}/api/oidc/device-authorization",),
            "token": ("{issuer}/api/oidc/token",),
            "userinfo": ("{issuer}/api/oidc/userinfo",),
            "jwks": ("{issuer}/jwks.json", "{issuer}/api/oidc/jwks"),
            "revocation": ("{issuer}/api/oidc/revocation",),
            "introspection": ("{issuer}/api/oidc/introspection",),
            ACCOUNT: ("{issuer}/settings",),
        },
    ),
    "pocket-id": Form(
        re.compile(r"(?P<root>(?:/.*[^/])?)"),
        "https://id.example.com",
        {
            "authorization": ("{issuer}/authorize",),
            "pushed_authorization_request": ("{issuer}/api/oidc/par",),
            "device_authorization": ("{issuer}/api/oidc/device/authorize",),
            "token": ("{issuer}/api/oidc/token",),
            "userinfo": ("{issuer}/api/oidc/userinfo",),
            "jwks": ("{issuer}/.well-known/jwks.json",),
            "introspection": ("{issuer}/api/oidc/introspect",),
            "end_session": ("{issuer}/api/oidc/end-session",),
            ACCOUNT: ("{issuer}/settings/account",),
        },
    ),
}


@dataclass(frozen=True)
class Alias:
    """An issuer of an earlier server, and the form of its addresses."""

    issuer: str
    form: str

    @cached_property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """The paths of its endpoints by name, its metadata and its account page among them."""
        path = urlsplit(self.issuer).path
        match = FORMS[self.form].shape.fullmatch(path)
        parts = {"issuer": path.removesuffix("/"), "root": match["root"] if match else ""}
        templates = {**FORMS[self.form].paths, METADATA: _WELL_KNOWN}
        return {
            name: tuple(dict.fromkeys(template.format(**parts) for template in listed))
            for name, listed in templates.items()
        }

    @cached_property
    def endpoints(self) -> dict[str, str]:
        """The URLs of its endpoints, as its metadata names them."""
        parts = urlsplit(self.issuer)
        base = f"{parts.scheme}://{parts.netloc}"
        return {name: base + self.paths[name][0] for name in ENDPOINTS if name in self.paths}


Aliases = Mapping[str, Alias]
NO_ALIASES: Aliases = {}


@lru_cache(maxsize=16)
def aliases_of(text: str) -> Aliases:
    """Return the aliases of a checked setting by their issuers."""
    pairs = (entry.rpartition("=") for entry in text.split())
    return {issuer: Alias(issuer, form) for issuer, _, form in pairs}


def checked(text: str) -> str:
    """Check issuers with the forms of their addresses, such as `https://…/realms/main=keycloak`."""
    entries = text.split()
    if len(entries) > MOST:
        raise ValueError(f"it has more than {MOST} issuers")
    issuers: set[str] = set()
    for entry in entries:
        issuer, _, form = entry.rpartition("=")
        if error := _error(issuer, form):
            raise ValueError(f"{entry[:300]}: {error}")
        if issuer in issuers:
            raise ValueError(f"{issuer} is there twice")
        issuers.add(issuer)
    for path, name, other in _contested(aliases_of(" ".join(entries))):
        raise ValueError(
            f"{name} and {other} would both answer at {path}; this server can stand for one of them"
        )
    return " ".join(entries)


def _error(issuer: str, form: str) -> str | None:
    if form not in FORMS:
        return f"give ISSUER=FORM, with a form of {', '.join(FORMS)}"
    if error := strict_url_error(issuer):
        return str(error)
    parts = urlsplit(issuer)
    if "?" in issuer or "#" in issuer:
        return "the issuer has a query or a fragment"
    is_local = parts.scheme == "http" and is_loopback(parts.hostname)
    if parts.scheme != "https" and not is_local:
        return "the issuer is not https"
    path = unquote(parts.path)
    segments = path.removeprefix("/").removesuffix("/").split("/")
    is_plain = path.isprintable() and not set(path) & set("<>{}%\\?#\ufffd")
    if not is_plain or path.endswith("//") or (path.strip("/") and {"", ".", ".."} & {*segments}):
        return "the issuer's path has empty segments, dots or characters that cannot be served"
    if not FORMS[form].shape.fullmatch(parts.path):
        return f"an issuer of {form} looks like {FORMS[form].example}"
    return None


def _contested(aliases: Aliases) -> Iterator[tuple[str, str, str]]:
    """Yield a path at which two issuers would have to be told apart, and both of them.

    Applications of authentik have issuers of their own, and endpoints that are the same for all.
    """
    users: dict[str, tuple[str, str]] = {}
    for alias in aliases.values():
        for name, paths in alias.paths.items():
            for path in map(unquote, paths):
                other_name, other = users.setdefault(path, (name, alias.issuer))
                is_shared = name == other_name and name != METADATA
                if other != alias.issuer and not is_shared:
                    yield path, other, alias.issuer


def errors_beside(text: str, base_url: str) -> Iterator[str]:
    """Yield why this server cannot answer under these issuers beside its own."""
    own = urlsplit(base_url).path
    for alias in aliases_of(text).values():
        if alias.issuer.removesuffix("/") == base_url:
            yield f"{alias.issuer} is SSO_BASE_URL itself; leave it out"
        elif urlsplit(alias.issuer).path.removesuffix("/") == own:
            yield (
                f"{alias.issuer} has the path of SSO_BASE_URL, {own or '/'}; give SSO_BASE_URL "
                "another path, such as /api/auth"
            )


class Address(NamedTuple):
    """What an endpoint at an old path is, by its name, and the issuers that it is of."""

    name: str
    issuers: frozenset[str]


def addresses_of(aliases: Aliases) -> dict[str, Address]:
    """Return the old addresses by path, as requests have it: decoded."""
    names: dict[str, str] = {}
    issuers: defaultdict[str, set[str]] = defaultdict(set)
    for alias in aliases.values():
        for name, paths in alias.paths.items():
            for path in map(unquote, paths):
                names[path] = name
                issuers[path].add(alias.issuer)
    return {path: Address(name, frozenset(issuers[path])) for path, name in names.items()}
