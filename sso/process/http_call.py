"""One request to a registered URL: bounded in time and size, without redirects."""

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from threading import Event, Timer
from typing import Any
from urllib.parse import urlencode, urlsplit

CONNECT_SECONDS = 3.0
MOST_ADDRESSES = 4  # of a name
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052
# All that IANA has allocated. Elsewhere are translations to IPv4 addresses that a network chose
# (RFC 8215), and old kinds of private addresses, which `ipaddress` takes for global ones.
_GLOBAL_UNICAST = IPv6Network("2000::/3")
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
    only_public: bool = False,
) -> Answer:
    """Send a request, and read so many bytes of the answer's body.

    Redirects are not followed. Link-local addresses, where clouds keep their credentials, are
    refused; with `only_public`, private and loopback addresses are, too. The name is resolved once,
    and the connection goes to the address that was checked.

    Raises `OSError`, `HTTPException` or `ValueError`.
    """
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path or "/"
    connection: HTTPConnection
    if parts.scheme == "https":
        tls = tls or ssl.create_default_context()
        connection = HTTPSConnection(host, parts.port, context=tls)
    else:
        tls = None
        connection = HTTPConnection(host, parts.port)
    always = {"Cache-Control": "no-store", "User-Agent": "sso", "Connection": "close"}
    late = Event()
    deadline = Timer(seconds, _break, [connection, late])
    deadline.daemon = True
    deadline.start()
    try:
        connection.sock = _connected(host, connection.port, only_public)
        certificate = None
        if tls:
            connection.sock = secured = tls.wrap_socket(connection.sock, server_hostname=host)
            certificate = secured.getpeercert()
        connection.sock.settimeout(seconds)
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


def _connected(host: str, port: int, only_public: bool) -> socket.socket:
    """A connection to the first address that is allowed and answers."""
    trouble: OSError = OSError("its name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    )[:MOST_ADDRESSES]:
        if reason := _forbidden(str(address[0]), only_public):
            trouble = ForbiddenPeer(f"its name leads to a {reason} address")
            continue
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(CONNECT_SECONDS)
            sock.connect(address)
        except OSError as error:
            sock.close()
            trouble = error
        else:
            return sock
    raise trouble


def _forbidden(address: str, only_public: bool) -> str | None:
    """What kind of address it is, if it must not be called."""
    peer = ip_address(address.partition("%")[0])
    if isinstance(peer, IPv6Address):
        embedded = int(peer) & 0xFFFFFFFF if peer in _NAT64 else None
        inner = peer.ipv4_mapped or peer.sixtofour
        peer = inner or (peer if embedded is None else IPv4Address(embedded))
    if peer.is_link_local or peer.is_multicast or peer.is_unspecified:
        return "link-local"
    is_global = peer.is_global and (peer.version == 4 or peer in _GLOBAL_UNICAST)
    return "private" if only_public and not is_global else None


def _break(connection: HTTPConnection, late: Event) -> None:
    """End a call that takes too long: it wakes whatever waits on the socket."""
    late.set()
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)
