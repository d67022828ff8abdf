"""One request to a registered URL: bounded in time and size, without redirects."""

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from threading import Event, Timer
from typing import Any
from urllib.parse import urlencode, urlsplit

CONNECT_SECONDS = 3.0
SECONDS = 8.0  # for the whole, however slowly the answer trickles


class PostError(Exception):
    """It was not accepted; `str()` is a short reason for the log."""


class ForbiddenPeer(OSError):
    """The name leads to an address that no client may have."""


@dataclass(frozen=True)
class Answer:
    """What was answered; names of headers are in lower case.

    `certificate`: as `ssl` shows it; empty over plain http.
    """

    status: int
    headers: Mapping[str, str]
    certificate: Mapping[str, Any]
    body: bytes = b""


def post_form(url: str, fields: dict[str, str], seconds: float = SECONDS) -> None:
    """Post a form. Raises `PostError` unless the answer is 200 or 204."""
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = post(url, urlencode(fields).encode(), kind, seconds=seconds)
    if answer.status not in (200, 204):
        raise PostError(f"it answered {answer.status}")


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, seconds: float = SECONDS, read: int = 0
) -> Answer:
    """Post a body. Raises `PostError` if nothing is answered."""
    try:
        return call("POST", url, body, headers, seconds=seconds, read=read)
    except (OSError, HTTPException, ValueError) as error:
        raise PostError(f"{type(error).__name__}: {error}"[:200]) from None


def call(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    seconds: float = SECONDS,
    read: int = 0,
) -> Answer:
    """Send a request, and read so many bytes of the answer's body.

    Redirects are not followed. Link-local addresses, where
    clouds keep their credentials, are refused after connecting: no name can be rebound in between.

    Raises `OSError`, `HTTPException` or `ValueError`.
    """
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path or "/"
    connection: HTTPConnection
    if parts.scheme == "https":
        tls = tls or ssl.create_default_context()
        connection = HTTPSConnection(host, parts.port, timeout=CONNECT_SECONDS, context=tls)
    else:
        connection = HTTPConnection(host, parts.port, timeout=CONNECT_SECONDS)
    always = {"Cache-Control": "no-store", "User-Agent": "sso", "Connection": "close"}
    late = Event()
    deadline = Timer(seconds, _break, [connection, late])
    deadline.daemon = True
    deadline.start()
    try:
        connection.connect()
        _check_peer(connection.sock)
        connection.sock.settimeout(seconds)
        secured = connection.sock if isinstance(connection.sock, ssl.SSLSocket) else None
        certificate = secured.getpeercert() if secured else None
        target = f"{path}?{parts.query}" if parts.query else path
        connection.request(method, target, body, {**(headers or {}), **always})
        answer = connection.getresponse()
        content = answer.read(read) if read else b""
        if not late.is_set():  # headers that break off count as complete to http.client
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, certificate or {}, content)
    except (OSError, HTTPException, ValueError):
        if not late.is_set():
            raise
    finally:
        deadline.cancel()
        connection.close()
    raise TimeoutError(f"it took longer than {seconds:g} s")


def _check_peer(sock: socket.socket) -> None:
    peer = ip_address(str(sock.getpeername()[0]).partition("%")[0])
    peer = getattr(peer, "ipv4_mapped", None) or peer
    if peer.is_link_local or peer.is_multicast or peer.is_unspecified:
        raise ForbiddenPeer("its name leads to a link-local address")


def _break(connection: HTTPConnection, late: Event) -> None:
    """End a call that takes too long: it wakes whatever waits on the socket."""
    late.set()
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)
