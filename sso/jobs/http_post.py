"""One POST to a URL that a client registered: bounded in time and size, without redirects."""

import socket
import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from threading import Event, Timer
from urllib.parse import urlencode, urlsplit

CONNECT_SECONDS = 3.0
SECONDS = 8.0  # for the whole, however slowly the answer trickles


class PostError(Exception):
    """It was not accepted; `str()` is a short reason for the log."""


def post_form(url: str, fields: dict[str, str], seconds: float = SECONDS) -> None:
    """Post a form. Raises `PostError` unless the answer is 200 or 204.

    Redirects are not followed and the body of the answer is not read. Link-local addresses, where
    clouds keep their credentials, are refused after connecting: no name can be rebound in between.
    """
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path or "/"
    connection: HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = HTTPSConnection(host, parts.port, timeout=CONNECT_SECONDS, context=context)
    else:
        connection = HTTPConnection(host, parts.port, timeout=CONNECT_SECONDS)
    late = Event()
    deadline = Timer(seconds, _break, [connection, late])
    deadline.daemon = True
    deadline.start()
    try:
        connection.connect()
        _check_peer(connection.sock)
        connection.sock.settimeout(seconds)
        connection.request(
            "POST",
            f"{path}?{parts.query}" if parts.query else path,
            urlencode(fields),
            {
                "Content-Type": "application/x-www-form-urlencoded",
                "Cache-Control": "no-store",
                "User-Agent": "sso",
                "Connection": "close",
            },
        )
        status = connection.getresponse().status
    except (OSError, HTTPException, ValueError) as error:
        raise PostError(f"{type(error).__name__}: {error}"[:200]) from None
    finally:
        deadline.cancel()
        connection.close()
    if late.is_set():  # headers that break off count as complete to http.client
        raise PostError(f"it took longer than {seconds:g} s")
    if status not in (200, 204):
        raise PostError(f"it answered {status}")


def _check_peer(sock: socket.socket) -> None:
    peer = ip_address(str(sock.getpeername()[0]).partition("%")[0])
    peer = getattr(peer, "ipv4_mapped", None) or peer
    if peer.is_link_local or peer.is_multicast or peer.is_unspecified:
        raise PostError("its name leads to a link-local address")


def _break(connection: HTTPConnection, late: Event) -> None:
    """End a call that takes too long: it wakes whatever waits on the socket."""
    late.set()
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)
