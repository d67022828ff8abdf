"""Admission control: few requests of a process run at once; waiting ones release their slot.

Python runs one thread at a time. More threads at work make nothing faster, but the slowest requests
slower. Waiting costs nothing and happens in threads beyond those (see `sso.server.common`).
"""

import io
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from flask import Flask

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

MAX_CONCURRENT = 6
# Refused requests that wait for their answer: a thread each, made on demand.
MAX_DELAYED = 192
REFUSAL_DELAY = 1.0  # seconds
MAX_BODY = 256 * 1024  # bytes
# Bytes of a form with the picture of a person, and the ends of the paths that accept it.
MAX_UPLOAD = 5 * 1024 * 1024 + 64 * 1024
UPLOAD_PATHS = ("/account/picture", "/admin/person/picture")
MAX_FIELDS = 1000  # of a form; parsing more takes longer than sending them
# A header with which `flask doctor` asks what reads bodies; the answer does not wait for one.
HEAD_ONLY = "X-SSO-Head-Only"
COLLECTED, IN_A_THREAD = "collected", "in a thread"  # the answers
BODY = "sso.body"  # in the environment: the whole body of a request, if it came whole
ARRIVED = "sso.arrived"  # when a request, read to its end, began to wait for a slot


# Each item is a free slot. This costs less than threading.Semaphore, which is written in Python.
Slots = SimpleQueue[None]


class _Current(threading.local):
    """The request that this thread handles."""

    slots: Slots | None = None
    delay: float = 0


_current = _Current()
_delay_slots = threading.BoundedSemaphore(MAX_DELAYED)


def max_body(path: str) -> int:
    """Return the most bytes that the body of a request for this path may have."""
    return MAX_UPLOAD if path.endswith(UPLOAD_PATHS) else MAX_BODY


def init_app(app: Flask) -> None:
    """Let each request wait for a slot."""
    app.wsgi_app = _Limited(app.wsgi_app)  # type: ignore[method-assign]  # as Flask documents


class _Limited:
    def __init__(self, application: "WSGIApplication") -> None:
        self.application = application
        self.slots: Slots = SimpleQueue()
        for _ in range(MAX_CONCURRENT):
            self.slots.put(None)

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        if "HTTP_X_SSO_HEAD_ONLY" in environ:
            return _answer_to_head(environ, start_response)
        _read_body(environ)
        environ[ARRIVED] = perf_counter()
        self.slots.get()
        before, _current.slots, _current.delay = _current.slots, self.slots, 0
        try:
            return self.application(environ, start_response)
        finally:
            _current.slots = before
            self.slots.put(None)


def _answer_to_head(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
    """Say whether a thread would wait for this body (see `sso.checkup.public_url`)."""
    has_collected = getattr(environ.get("gunicorn.socket"), "collects", False)
    answer = (HEAD_ONLY, COLLECTED if has_collected else IN_A_THREAD)
    # Else a cache could give it to others, instead of the page or file that they ask for.
    start_response("204 No Content", [answer, ("Cache-Control", "no-store")])
    return []


def _read_body(environ: "WSGIEnvironment") -> None:
    """Read the body before taking a slot: some clients send it slowly or never finish."""
    declared, length = environ.get("CONTENT_LENGTH", "").lstrip("0"), 0
    most = max_body(environ.get("PATH_INFO", ""))
    if environ.get("HTTP_TRANSFER_ENCODING"):
        length = MAX_BODY + 1  # one byte too many is enough to be refused
        most = MAX_BODY  # no browser sends a form in chunks
    elif declared.isdecimal() and len(declared) < 10 and int(declared) <= most:
        length = int(declared)
    if length:
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = io.BytesIO(body)
        # A body that broke off is shorter than its length, and is refused (400).
        environ.pop("wsgi.input_terminated", None)
        if len(body) == length <= most:
            environ[BODY] = body
        # No longer chunked: Werkzeug would cut off what is beyond the limit instead of refusing it.
        if environ.pop("HTTP_TRANSFER_ENCODING", None):
            environ["CONTENT_LENGTH"] = str(len(body))
        # In a file of a form, the sign separates nothing; Werkzeug counts the fields there.
        is_form_data = environ.get("CONTENT_TYPE", "").startswith("multipart/form-data;")
        if not is_form_data and body.count(b"&") > MAX_FIELDS:
            environ["CONTENT_LENGTH"] = str(most + 1)  # refused as too large
            environ.pop(BODY, None)


@contextmanager
def slot_released() -> Iterator[None]:
    """Release this request's slot within the block, and wait for a free one at its end.

    The transaction must be over: another request may need its connection or its locks.
    """
    slots = _current.slots
    if slots is None:  # no request: a command
        yield
        return
    slots.put(None)
    try:
        yield
    finally:
        slots.get()


def delay_refusal(since: float | None = None) -> None:
    """Wait for `REFUSAL_DELAY` without a slot, unless too many refusals wait already.

    `since` (of `perf_counter`): from when, so that the answer does not tell how long its work took.

    A client that repeats a refused request over one connection is slowed down at no cost.
    """
    if not _delay_slots.acquire(blocking=False):
        return
    began = perf_counter()
    try:
        with slot_released():
            sleep(max(0, (since or began) + REFUSAL_DELAY - began))
    finally:
        _delay_slots.release()
        _current.delay += perf_counter() - began


def refusal_delay() -> float:
    """The seconds for which this request's answer was delayed; they are not the server's work."""
    return _current.delay
