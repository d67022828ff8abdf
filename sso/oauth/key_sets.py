"""The public keys of clients: registered ones, and those of a `jwks_uri` (RFC 7591 §2).

A key set is read from its URL when it is first needed, when it is old, and when a signature names a
key that it does not have; that last at a bounded rate, as anyone can make up the name of a key.
Each URL is read in a thread of its own. A request waits for it without a slot and without a
database connection, and few requests wait at a time, so that a slow URL holds up no other client.
"""

import json
import logging
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from http.client import HTTPException
from ssl import SSLError
from threading import BoundedSemaphore, Lock, Thread
from typing import cast

from flask import Flask, current_app

from sso import clock
from sso.crypto import client_keys
from sso.crypto.client_keys import ClientKey
from sso.process import concurrency, http_call
from sso.ratelimit import refusals
from sso.store.clients import RegisteredClient

logger = logging.getLogger("sso.oauth")

FRESH = timedelta(minutes=5)
KEPT = timedelta(hours=1)  # while the URL cannot be read
PAUSE = timedelta(seconds=30)  # between two readings of a URL
SECONDS = 5.0  # for one reading
MAX_LENGTH = 64 * 1024
MAX_WAITING = 32  # requests of this process
MAX_READING = 16  # URLs
Keys = tuple[ClientKey, ...]


class KeySetUnavailable(Exception):
    """A key set cannot be read; `reason` says why in our words, `str()` also with those of others.

    `is_passing`: it may be there in a moment.
    """

    def __init__(self, reason: str, detail: str = "", *, is_passing: bool = False) -> None:
        super().__init__(f"{reason} ({detail[:200]})" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.is_passing = is_passing


@dataclass
class _Entry:
    keys: Keys = ()
    read_at: datetime | None = None
    tried_at: datetime | None = None
    reading: "Future[Keys] | None" = None
    trouble: KeySetUnavailable | None = None

    def has(self, kid: str | None, younger_than: timedelta) -> bool:
        is_young = self.read_at is not None and clock.now() < self.read_at + younger_than
        return is_young and (kid is None or any(key.kid == kid for key in self.keys))


def read(url: str) -> Keys:
    """The keys that a URL gives now. Raises `KeySetUnavailable`."""
    kind = {"Accept": "application/jwk-set+json, application/json"}
    try:
        answer = http_call.call(
            "GET", url, headers=kind, seconds=SECONDS, read=MAX_LENGTH + 1, only_public=True
        )
        if answer.status != 200:
            raise KeySetUnavailable(f"it answered {answer.status}, not 200")
        if len(answer.body) > MAX_LENGTH:
            raise KeySetUnavailable(f"it is longer than {MAX_LENGTH} bytes")
        keys = client_keys.usable(json.loads(answer.body))
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


class KeySets:
    """What was read of URLs in this process."""

    def __init__(self, read: Callable[[str], Keys] = read) -> None:
        self._read = read
        self._lock = Lock()
        self._entries: dict[str, _Entry] = {}
        self._waiting = BoundedSemaphore(MAX_WAITING)
        self._readers = BoundedSemaphore(MAX_READING)

    def keys(self, url: str, kid: str | None) -> Keys:
        """The keys at a URL, which include this one, if it is there. Raises `KeySetUnavailable`."""
        entry, reading = self._entry(url, kid)
        if entry.has(kid, KEPT):
            return entry.keys  # and if they are old, others are on their way
        if reading is not None:
            return self._wait(reading)
        if entry.has(None, KEPT):
            return entry.keys
        if entry.trouble is None:
            raise KeySetUnavailable("it is not there yet", is_passing=True)
        raise KeySetUnavailable(entry.trouble.reason, entry.trouble.detail)

    def _entry(self, url: str, kid: str | None) -> "tuple[_Entry, Future[Keys] | None]":
        with self._lock:
            entry = self._entries.setdefault(url, _Entry())
            if entry.reading is None and not entry.has(kid, FRESH) and self._is_due(entry):
                entry.reading = Future()
                Thread(target=self._fetch, args=(url, entry, entry.reading), daemon=True).start()
            return entry, entry.reading

    def _is_due(self, entry: _Entry) -> bool:
        now = clock.now()
        if entry.tried_at is not None and now < entry.tried_at + PAUSE:
            return False
        if not self._readers.acquire(blocking=False):
            return False
        entry.tried_at = now
        return True

    def _fetch(self, url: str, entry: _Entry, reading: "Future[Keys]") -> None:
        try:
            keys = self._read(url)
        except Exception as error:
            if not isinstance(error, KeySetUnavailable):
                error = KeySetUnavailable("it could not be read", repr(error))
            entry.trouble, entry.reading = error, None
            logger.info("the key set of a client at %s: %s", url, error)
            reading.set_exception(error)
        else:
            entry.keys, entry.read_at, entry.trouble, entry.reading = keys, clock.now(), None, None
            reading.set_result(keys)
        finally:
            self._readers.release()

    def _wait(self, reading: "Future[Keys]") -> Keys:
        if not self._waiting.acquire(blocking=False):
            raise KeySetUnavailable("too many requests wait for key sets", is_passing=True)
        try:
            with concurrency.slot_released():
                return reading.result(SECONDS)
        except Late:
            raise KeySetUnavailable("it is not there yet", is_passing=True) from None
        finally:
            self._waiting.release()


def init_app(app: Flask) -> None:
    app.extensions["sso.key_sets"] = KeySets()


@lru_cache(maxsize=256)
def _registered(client: RegisteredClient) -> Keys:
    return client_keys.usable(client.client_metadata.get("jwks"))


def of(client: RegisteredClient, kid: str | None) -> Keys:
    """The keys of a client. No transaction may be open. Raises `KeySetUnavailable`."""
    url = client.client_metadata.get("jwks_uri")
    if url is None:
        return _registered(client)
    return cast(KeySets, current_app.extensions["sso.key_sets"]).keys(url, kid)


def described(error: KeySetUnavailable, client: RegisteredClient) -> str:
    """What a client is told of it: the URL is its own, but strangers may ask, too."""
    if error.is_passing:
        return "The key set of the client could not be read in time; try again."
    url = refusals.without_query(client.client_metadata["jwks_uri"])
    return f"The key set at {url} could not be read: {error.reason}."
