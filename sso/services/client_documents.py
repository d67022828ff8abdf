"""Client ID Metadata Documents: which URLs may identify a client, and what a document registers.

A client identifier that is an https URL names a JSON document, which describes the client with the
fields of RFC 7591 (draft-ietf-oauth-client-id-metadata-document). Its domain is all that is proven.
`sso.oauth.document_clients` reads documents; nothing here does.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from sso.config import tables, urls
from sso.config.auth_methods import NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.client_fields import AUTHORIZATION_CODE
from sso.flow.scopes import SCOPES
from sso.i18n.message import Message
from sso.models import Client
from sso.models.clients import DOCUMENT, OPEN
from sso.services import clients
from sso.services.checks import Invalid, Rule

MAX_LENGTH = 10 * 1024  # bytes
MAX_URL = 200  # characters, as the audit trail keeps them
MOST_REDIRECT_URIS = 20
SCOPE = "openid profile email offline_access"  # of an agent that names none
_OF_OPERATORS = ("groups",)
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
DOMAIN = rf"(?:{_LABEL}\.)+[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])?"  # in lower case
# Exactly one spelling for each document: identifiers are compared character by character (§3).
_URL = re.compile(
    rf"https://(?P<domain>{DOMAIN})"
    r"(?P<port>:[1-9][0-9]{0,4})?(?P<path>(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]+)+/?)"
)


def is_url(client_id: str) -> bool:
    """Return whether a client identifier is meant to be the URL of a document."""
    return client_id.startswith("https://")


def domain_of(client_id: str) -> str:
    """Return the domain of a document, without its port."""
    return urlsplit(client_id).hostname or ""


def authority_of(client_id: str) -> str:
    """Return what is verified about a document: its domain, and its port unless that is 443.

    Another port of a host may belong to somebody else (RFC 6454 §4).
    """
    return urlsplit(client_id).netloc


def url_error(client_id: str) -> Message | None:
    """Return why a URL cannot identify a client (§3), or `None`."""
    if len(client_id) > MAX_URL:
        return Message("it is longer than %(most)d characters", most=MAX_URL)
    match = _URL.fullmatch(client_id)
    if match is None:
        return Message(
            "it has to be https, with a domain in lower case and a path, and without a query, a "
            "fragment, a user name, an empty segment or percent-encoding"
        )
    if any(segment in (".", "..") for segment in match["path"].split("/")):
        return Message("its path has . or .. segments")
    port = int((match["port"] or ":1")[1:])
    if port == 443 or port > 65535:
        return Message("its port is the default one, or none")
    return None


def registered(client_id: str, document: Any) -> Client:
    """Return the client that a document describes, which is not stored. Raises `Invalid`.

    Fields of RFC 7591 that it must not decide, such as a logo, are left out.
    """
    if not isinstance(document, dict):
        raise Invalid([Message("it is not a JSON object")])
    if document.get("client_id") != client_id:
        raise Invalid([Message("its client_id is not the URL that it is at")])
    if "client_secret" in document:
        raise Invalid([Message("it has a client_secret, which everybody could read")])
    method = document.get("token_endpoint_auth_method", NO_AUTH_METHOD)
    if method not in (NO_AUTH_METHOD, PRIVATE_KEY_JWT):
        raise Invalid(
            [Message("its token_endpoint_auth_method is neither none nor private_key_jwt")]
        )
    for name, needed in (("grant_types", AUTHORIZATION_CODE), ("response_types", "code")):
        if name in document and not _has(document[name], needed):
            raise Invalid([Message("its %(name)s do not have %(value)s", name=name, value=needed)])
    domain = domain_of(client_id)
    fields = {
        "client_name": _name(document.get("client_name"), authority_of(client_id)),
        "redirect_uris": _redirect_uris(document.get("redirect_uris"), domain),
        "token_endpoint_auth_method": method,
        "scope": scope_of(document.get("scope")),
        "require_pkce": True,
    }
    if method == PRIVATE_KEY_JWT:
        fields |= _keys(document)
    return clients.draft_agent(client_id, fields, DOCUMENT)


def of_stranger(fields: Mapping[str, Any]) -> Client:
    """Return the client that a stranger registers (RFC 7591 §2), not stored. Raises `Invalid`."""
    name = fields.get("client_name")
    registered = {
        "client_name": _name(name, "?") if name else _named_by(fields.get("redirect_uris")),
        "redirect_uris": _redirect_uris(fields.get("redirect_uris"), None),
        "token_endpoint_auth_method": NO_AUTH_METHOD,
        "scope": scope_of(fields.get("scope")),
        "require_pkce": True,
    }
    return clients.draft_agent(clients.new_client_id(), registered, OPEN)


def _named_by(uris: Any) -> str:
    """Return the host of the first redirect URI, for a client without a name."""
    first = uris[0] if isinstance(uris, list) and uris and isinstance(uris[0], str) else ""
    try:
        return urlsplit(first).hostname or "?"
    except ValueError:
        return "?"


def with_policy(metadata: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a document with what an operator decided about the client."""
    decided = {name: stored[name] for name in _OF_OPERATORS if name in stored}
    return {**metadata, **decided}


def _has(values: Any, needed: str) -> bool:
    return isinstance(values, list) and needed in values


def _name(name: Any, default: str) -> str:
    """Return the name that a document claims, cut if it is long."""
    if name is None:
        return default
    if not isinstance(name, str):
        raise Invalid([Message("its client_name is not a text")])
    try:
        return tables.shortened_name(name)
    except ValueError as error:
        raise Invalid([Message("its client_name: %(reason)s", reason=str(error))]) from None


def scope_of(scope: Any) -> str:
    """Return the scopes of this server that an agent may request. Raises `Invalid`."""
    if scope is None:
        return SCOPE
    if not isinstance(scope, str):
        raise Invalid([Message("its scope is not a text")])
    names = [name for name in SCOPE.split() if name in scope.split()[: len(SCOPES) * 10]]
    return " ".join(dict.fromkeys(["openid", *names]))


def _redirect_uris(uris: Any, domain: str | None) -> list[str]:
    if not isinstance(uris, list) or not uris or not all(isinstance(uri, str) for uri in uris):
        raise Invalid([Message("its redirect_uris are not a list of texts")])
    if len(uris) > MOST_REDIRECT_URIS:
        raise Invalid([Message("it has more than %(most)d redirect_uris", most=MOST_REDIRECT_URIS)])
    foreign: list[str] = []
    for uri in uris:
        if error := urls.registration_error(uri, is_public=True):
            label = Message("the redirect address")
            raise Invalid([urls.refused(label, uri, error, Rule.INVALID_REDIRECT_URI)])
        if domain is None:
            continue
        host = urlsplit(uri).hostname or ""
        is_web = uri.startswith("https://")
        if is_web and not (host == domain or host.endswith(f".{domain}")):
            foreign.append(uri)  # not registered: people are asked about the domain alone
    own = [uri for uri in dict.fromkeys(uris) if uri not in foreign]
    if not own:
        host = (urlsplit(foreign[0]).hostname or "")[:100]
        raise Invalid(
            [Message("its redirect_uris lead to %(host)s, which is another domain", host=host)]
        )
    return own


def _keys(document: Mapping[str, Any]) -> dict[str, Any]:
    for name, kind in (("jwks_uri", str), ("jwks", dict)):
        if name in document:
            if not isinstance(document[name], kind):
                raise Invalid([Message("its %(name)s has the wrong type", name=name)])
            return {name: document[name]}
    raise Invalid([Message("it has neither jwks_uri nor jwks for private_key_jwt")])
