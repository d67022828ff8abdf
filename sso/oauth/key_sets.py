"""The public keys of clients: registered ones, and those of a `jwks_uri` (RFC 7591 §2).

In place of its own keys, a client may have those of an issuer that it trusts.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from http.client import HTTPException
from ssl import SSLError
from time import monotonic
from typing import Any, cast

from flask import Flask, current_app

from sso.config.client_fields import FIELDS
from sso.crypto import client_jwt
from sso.crypto.client_jwt import ClientKey
from sso.models.clients import ClientRegistration
from sso.process import http_call
from sso.ratelimit import refusals
from sso.store.clients import RegisteredClient
from sso.upstream.remote_cache import RemoteCache, RemoteUnavailable

SECONDS = 5.0  # for one reading
MAX_LENGTH = 64 * 1024
DISCOVERY_PATH = "/.well-known/openid-configuration"
_ISSUERS = "sso.trusted_issuers"
Keys = tuple[ClientKey, ...]
KeySetUnavailable = RemoteUnavailable


def read(url: str, seconds: float | None = None) -> Keys:
    """Read the keys at a URL now. Raises `KeySetUnavailable`."""
    keys = client_jwt.usable_keys(_document(url, seconds))
    if not keys:
        raise KeySetUnavailable("it has no key that can verify signatures here")
    return keys


def read_of_issuer(issuer: str) -> Keys:
    """Read the keys that the metadata of an issuer names now (OIDC Discovery §4, §7.2).

    Raises `KeySetUnavailable`.
    """
    ends = monotonic() + SECONDS
    metadata = _document(issuer.removesuffix("/") + DISCOVERY_PATH)
    if not isinstance(metadata, dict) or metadata.get("issuer") != issuer:
        raise KeySetUnavailable("its metadata names another issuer")
    url = metadata.get("jwks_uri")
    if not isinstance(url, str) or FIELDS["jwks_uri"].url_error(url):
        raise KeySetUnavailable("the jwks_uri of its metadata is not a public https URL")
    return read(url, max(0.0, ends - monotonic()))


def _document(url: str, seconds: float | None = None) -> Any:
    """Read the JSON at a URL now. Raises `KeySetUnavailable`."""
    kind = {"Accept": "application/jwk-set+json, application/json"}
    seconds = SECONDS if seconds is None else seconds
    try:
        answer = http_call.call(
            "GET", url, headers=kind, seconds=seconds, read=MAX_LENGTH + 1, only_public=True
        )
        if answer.status != 200:
            raise KeySetUnavailable(f"it answered {answer.status}, not 200")
        if len(answer.body) > MAX_LENGTH:
            raise KeySetUnavailable(f"it is longer than {MAX_LENGTH} bytes")
        return json.loads(answer.body)
    except http_call.ForbiddenPeer as error:
        raise KeySetUnavailable(str(error)) from None
    except (OSError, HTTPException) as error:
        reason = "it could not be reached"
        if isinstance(error, TimeoutError):
            reason = "it did not answer in time"
        elif isinstance(error, SSLError):
            reason = "its certificate is not accepted"
        raise KeySetUnavailable(reason, f"{type(error).__name__}: {error}") from None
    except (ValueError, RecursionError):
        raise KeySetUnavailable("it is not JSON") from None


class KeySets(RemoteCache[Keys]):
    """What was read of URLs in this process."""

    def __init__(
        self, read: Callable[[str], Keys] = read, what: str = "the key set of a client"
    ) -> None:
        super().__init__(read, what)

    def keys(self, url: str, kid: str | None) -> Keys:
        """Return the keys at a URL, including this one if it is there. Raises `KeySetUnavailable`.

        Anyone can make up the name of a key.
        """
        return self.get(url, lambda keys: kid is None or any(key.kid == kid for key in keys))


def init_app(app: Flask) -> None:
    app.extensions["sso.key_sets"] = KeySets()
    app.extensions[_ISSUERS] = KeySets(read_of_issuer, "the key set of an issuer")


@lru_cache(maxsize=256)
def _registered(client: RegisteredClient) -> Keys:
    return client_jwt.usable_keys(client.client_metadata.get("jwks"))


def of(client: RegisteredClient, kid: str | None) -> Keys:
    """Return the keys of a client, or of the issuer that it trusts. No transaction may be open.

    Raises `KeySetUnavailable`.
    """
    metadata = client.client_metadata
    if "jwks_uri" in metadata:
        name, url = "sso.key_sets", metadata["jwks_uri"]
    elif client.trust_issuer and "jwks" not in metadata:
        name, url = _ISSUERS, client.trust_issuer
    else:
        return _registered(client)
    return cast(KeySets, current_app.extensions[name]).keys(url, kid)


def of_issuer(issuer: str, kid: str | None) -> Keys:
    """Return the keys of an issuer. No transaction may be open. Raises `KeySetUnavailable`."""
    return cast(KeySets, current_app.extensions[_ISSUERS]).keys(issuer, kid)


def described(error: KeySetUnavailable, client: RegisteredClient) -> str:
    """Return the description for a client: the URL is its own, but strangers may ask, too."""
    if error.is_passing:
        return "The key set of the client could not be read in time; try again."
    if client.trust_issuer:  # whom it trusts is not for strangers
        return f"The keys of the issuer that the client trusts could not be read: {error.reason}."
    url = refusals.without_query(source_of(client) or "")
    return f"The key set at {url} could not be read: {error.reason}."


def source_of(client: ClientRegistration) -> str | None:
    """Return the URL that leads to the keys; `None`: they are registered themselves."""
    metadata = client.client_metadata
    issuer = None if "jwks" in metadata else client.trust_issuer
    return metadata.get("jwks_uri") or issuer
