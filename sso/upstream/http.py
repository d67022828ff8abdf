"""Requests to a provider: few at a time, bounded in time and size, to the addresses it may have."""

import io
import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from http.client import HTTPException
from threading import BoundedSemaphore, local
from time import monotonic
from typing import Any, TypeVar

import requests
from authlib.integrations.requests_client import OAuth2Session
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from sso import clock
from sso.config.upstream.oidc import WebProvider
from sso.i18n.message import Message
from sso.process import concurrency, http_call
from sso.upstream.identity import UpstreamUnavailable
from sso.upstream.remote_cache import RemoteUnavailable, is_private

logger = logging.getLogger("sso.upstream")

SECONDS = 5.0  # for one request
SECONDS_TOGETHER = 8.0  # for all requests of `Caller.run`
MAX_LENGTH = 256 * 1024
LONGEST_TOKEN = 16 * 1024
MAX_CONCURRENT = 8  # sign-ins that wait for one provider
MAX_FAILURES = 3  # in a row; then it is left alone for a while
PAUSE = timedelta(seconds=15)
T = TypeVar("T")


class Adapter(BaseAdapter):
    """The transport of `requests` on `http_call`. Redirects are not followed."""

    def __init__(self, only_public: bool, seconds: Callable[[], float]) -> None:
        super().__init__()
        self.only_public = only_public
        self._seconds = seconds

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        body = request.body.encode() if isinstance(request.body, str) else request.body
        answer = http_call.call(
            request.method or "GET",
            request.url or "",
            body,
            dict(request.headers),
            seconds=self._seconds(),
            read=MAX_LENGTH + 1,
            only_public=self.only_public,
        )
        if 300 <= answer.status < 400 or len(answer.body) > MAX_LENGTH:
            raise ValueError(f"it answered {answer.status}, or too much")
        response = requests.Response()
        response.status_code, response.url = answer.status, request.url or ""
        response.headers = CaseInsensitiveDict(answer.headers)
        response.request, response.raw = request, io.BytesIO(answer.body)
        return response

    def close(self) -> None:
        """Do nothing: no connection is kept open."""


class Caller:
    """All requests of this process to one provider."""

    def __init__(self, provider: WebProvider) -> None:
        self.provider = provider
        self._free = BoundedSemaphore(MAX_CONCURRENT)
        self._run = local()
        self._failures = 0
        self._failed_at: datetime | None = None
        self.trouble = ""

    def session(self, **more: Any) -> OAuth2Session:
        """Authlib's client, on our transport."""
        provider = self.provider
        session = OAuth2Session(
            provider.client_id,
            provider.client_secret,
            code_challenge_method="S256",
            trust_env=False,
            **more,
        )
        adapter = Adapter(not provider.allow_private_addresses, self._seconds)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        session.headers.clear()
        session.headers["Accept"] = "application/json"
        return session

    def get_json(self, url: str) -> dict[str, Any]:
        """Read a JSON document of the provider. Not for requests: their slot stays taken."""
        answer = http_call.call(
            "GET",
            url,
            headers={"Accept": "application/json"},
            seconds=SECONDS,
            read=MAX_LENGTH + 1,
            only_public=not self.provider.allow_private_addresses,
        )
        if answer.status != 200 or len(answer.body) > MAX_LENGTH:
            raise RemoteUnavailable(
                Message("%(url)s answered %(status)s, or too much", url=url, status=answer.status)
            )
        return read_object(answer.body)

    def run(self, ask: Callable[[], T]) -> T:
        """Ask the provider, without a slot. No transaction may be open.

        Raises `UpstreamUnavailable`: at once while it has failed lately, or many wait for it.
        """
        if self._failures >= MAX_FAILURES and self._failed_at:
            if clock.now() < self._failed_at + PAUSE:
                raise UpstreamUnavailable(f"it has failed lately: {self.trouble}")
            self._failures -= 1  # one may try
        if not self._free.acquire(blocking=False):
            raise UpstreamUnavailable("too many sign-ins wait for it")
        try:
            self._run.ends = monotonic() + SECONDS_TOGETHER
            with concurrency.slot_released():
                answer = ask()
        except (
            *(OSError, HTTPException, ValueError, RecursionError, TypeError, KeyError),
            *(requests.RequestException, RemoteUnavailable),
        ) as error:
            self._failures, self._failed_at = self._failures + 1, clock.now()
            self.trouble = f"{type(error).__name__}: {error}"[:200]
            logger.warning("the provider %s: %s", self.provider.id, self.trouble)
            raise UpstreamUnavailable(self.trouble, is_private=is_private(error)) from None
        else:
            self._failures, self.trouble = 0, ""
            return answer
        finally:
            self._run.ends = None
            self._free.release()

    def _seconds(self) -> float:
        """Return the seconds that the next request may take."""
        ends = getattr(self._run, "ends", None)
        seconds = SECONDS if ends is None else min(ends - monotonic(), SECONDS)
        if seconds <= 0:
            raise TimeoutError(f"its answers took longer than {SECONDS_TOGETHER:g} s")
        return seconds


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises `ValueError`."""
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


def text(values: Mapping[str, Any], name: str, most: int = 500) -> str | None:
    """Return a member of a document if it is a short text in one line."""
    value = values.get(name)
    return value if is_line(value, most) and isinstance(value, str) else None


def is_line(value: object, most: int) -> bool:
    """Return whether it is a text of at most `most` characters, without control characters."""
    if not isinstance(value, str) or not 0 < len(value) <= most:
        return False
    return not any(c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in value)
