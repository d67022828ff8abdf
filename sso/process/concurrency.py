"""Whose turn it is: few requests of a process run at once, and who only waits lets another run.

Python runs one thread at a time: with more of them at work nothing gets faster, but the slowest
answers slower. Waiting costs nothing, and is done in threads beyond those (see gunicorn_conf).
"""

import errno
import io
import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from flask import Flask

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger("sso.turns")

RUNNING = 6
# Those that are refused, and wait before they are told: a thread each, which is made at need.
WAITING = 192
MOMENT = 1.0  # seconds for which they wait
MAX_BODY = 256 * 1024  # bytes
MAX_FIELDS = 1000  # of a form; reading more takes longer than sending them
ARRIVED = "sso.arrived"  # when a request, read to its end, began to wait for its turn


# What is in it may be taken by one; it costs less than threading.Semaphore, which is of Python.
Turns = SimpleQueue[None]


class _Here(threading.local):
    turns: Turns | None = None
    sat_out: float = 0


_here = _Here()
_to_wait = threading.BoundedSemaphore(WAITING)


def init_app(app: Flask) -> None:
    """Let each request wait for its turn."""
    app.wsgi_app = _InTurn(app.wsgi_app)  # type: ignore[method-assign]  # as Flask's manual does


class _InTurn:
    def __init__(self, application: "WSGIApplication") -> None:
        self.application = application
        self.turns: Turns = SimpleQueue()
        for _ in range(RUNNING):
            self.turns.put(None)

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        _read_body(environ)
        environ[ARRIVED] = perf_counter()
        self.turns.get()
        before, _here.turns, _here.sat_out = _here.turns, self.turns, 0
        try:
            return self.application(environ, start_response)
        finally:
            _here.turns = before
            self.turns.put(None)


def _read_body(environ: "WSGIEnvironment") -> None:
    """Wait for it before the turn: some send it slowly, and some never to its end."""
    told, length = environ.get("CONTENT_LENGTH", "").lstrip("0"), 0
    if environ.get("HTTP_TRANSFER_ENCODING"):
        length = MAX_BODY + 1  # one more is enough to be refused
    elif told.isdecimal() and len(told) < 10 and int(told) <= MAX_BODY:
        length = int(told)
    if length:
        try:
            body = environ["wsgi.input"].read(length)
        finally:
            _give_up_if_late(environ)
        environ["wsgi.input"] = io.BytesIO(body)
        # No longer in chunks, of which Werkzeug would cut off what is too much.
        if environ.pop("HTTP_TRANSFER_ENCODING", None):
            environ["CONTENT_LENGTH"] = str(len(body))
        if body.count(b"&") > MAX_FIELDS:
            environ["CONTENT_LENGTH"] = str(MAX_BODY + 1)  # refused as what is too long


def _give_up_if_late(environ: "WSGIEnvironment") -> None:
    """Leave a client that takes too long to `gunicorn_worker`, which answers 408 and closes."""
    if getattr(environ.get("gunicorn.socket"), "is_late", False):
        logger.info("408: the body of a %s did not arrive in time", environ["REQUEST_METHOD"][:20])
        raise ConnectionResetError(errno.ECONNRESET, "the body did not arrive in time")


@contextmanager
def passed_on() -> Iterator[None]:
    """Wait in this block, and let another request run meanwhile.

    The transaction must be over: the other request may need this one's connection, or its locks.
    """
    turns = _here.turns
    if turns is None:  # no request: the command line
        yield
        return
    turns.put(None)
    try:
        yield
    finally:
        turns.get()


def sit_out() -> None:
    """Pass the turn on for a moment, as `passed_on`, if there is a place to wait in.

    Anyone who asks again and again over one connection then asks less often, at no cost.
    """
    if not _to_wait.acquire(blocking=False):
        return
    began = perf_counter()
    try:
        with passed_on():
            sleep(MOMENT)
    finally:
        _to_wait.release()
        _here.sat_out += perf_counter() - began


def sat_out() -> float:
    """The seconds for which this request has sat out; they are no sign of a slow server."""
    return _here.sat_out
