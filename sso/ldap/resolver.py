"""Addresses of host names, within a time: `getaddrinfo` has no limit of its own."""

import socket
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from threading import BoundedSemaphore, Thread
from typing import Any

_MOST = 64  # look-ups at once; each that hangs keeps a thread until the resolver gives up
_free = BoundedSemaphore(_MOST)


def addresses(host: str, port: int, seconds: float) -> list[Any]:
    """What `getaddrinfo` gives for TCP. Raises `OSError`, in time."""
    if not _free.acquire(blocking=False):
        raise TimeoutError("too many names are being looked up")
    found: Future[list[Any]] = Future()
    Thread(target=_look_up, args=(host, port, found), daemon=True).start()
    try:
        return found.result(seconds)
    except Late:
        raise TimeoutError(f"the name {host} could not be looked up in {seconds:g} s") from None


def _look_up(host: str, port: int, found: "Future[list[Any]]") -> None:
    try:
        found.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except Exception as error:
        found.set_exception(error)
    finally:
        _free.release()
