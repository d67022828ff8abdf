"""The public keys of clients: registered ones, and those of a `jwks_uri` (RFC 7591 §2)."""

import json
from collections.abc import Callable
from functools import lru_cache
from http.client import HTTPException
from ssl import SSLError
from typing import cast

from flask import Flask, current_app

from sso.crypto import client_jwt
from sso.crypto.client_jwt import ClientKey
from sso.process import http_call
from sso.ratelimit import refusals
from sso.store.clients import RegisteredClient
from sso.upstream.remote_cache import RemoteCache, RemoteUnavailable

SECONDS = 5.0  # for one reading
MAX_LENGTH = 64 * 1024
Keys = tuple[ClientKey, ...]
KeySetUnavailable = RemoteUnavailable


def read(url: str) -> Keys:
    """Read the keys at a URL now. Raises `KeySetUnavailable`."""
    kind = {"Accept": "application/jwk-set+json, application/json"}
    try:
        answer = http_call.call(
            "GET", url, headers=kind, seconds=SECONDS, read=MAX_LENGTH + 1, only_public=True
        )
        if answer.status != 200:
            raise KeySetUnavailable(f"it answered {answer.status}, not 200")
        if len(answer.body) > MAX_LENGTH:
            raise KeySetUnavailable(f"it is longer than {MAX_LENGTH} bytes")
        keys = client_jwt.usable_keys(json.loads(answer.body))
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
    if not keys:
        raise KeySetUnavailable("it has no key that can verify signatures here")
    return keys


class KeySets(RemoteCache[Keys]):
    """What was read of URLs in this process."""

    def __init__(self, read: Callable[[str], Keys] = read) -> None:
        super().__init__(read, "the key set of a client")

    def keys(self, url: str, kid: str | None) -> Keys:
        """Return the keys at a URL, including this one if it is there. Raises `KeySetUnavailable`.

        Anyone can make up the name of a key.
        """
        return self.get(url, lambda keys: kid is None or any(key.kid == kid for key in keys))


def init_app(app: Flask) -> None:
    app.extensions["sso.key_sets"] = KeySets()


@lru_cache(maxsize=256)
def _registered(client: RegisteredClient) -> Keys:
    return client_jwt.usable_keys(client.client_metadata.get("jwks"))


def of(client: RegisteredClient, kid: str | None) -> Keys:
    """Return the keys of a client. No transaction may be open. Raises `KeySetUnavailable`."""
    url = client.client_metadata.get("jwks_uri")
    if url is None:
        return _registered(client)
    return cast(KeySets, current_app.extensions["sso.key_sets"]).keys(url, kid)


def described(error: KeySetUnavailable, client: RegisteredClient) -> str:
    """Return the description for a client: the URL is its own, but strangers may ask, too."""
    if error.is_passing:
        return "The key set of the client could not be read in time; try again."
    url = refusals.without_query(client.client_metadata["jwks_uri"])
    return f"The key set at {url} could not be read: {error.reason}."
