"""One request to a registered URL: bounded in time and size, without redirects."""

import io
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from sso.process import addresses
from sso.process.resolver import Resolver

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

CONNECT_SECONDS = 3.0
MOST_ADDRESSES = 4  # of a name
SECONDS = 8.0  # for the whole, however slowly the answer trickles
_MOST_HEADERS = 1024 * 1024  # bytes, with the frames of chunks
_resolver = Resolver()
_PORTS = {"http": 80, "https": 443}


class PostError(Exception):
    """It was not accepted; `str()` is a short reason for the log."""


class ForbiddenPeer(OSError):
    """The name resolves to an address that must not be called; `kind`: see `addresses`."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"its name leads to a {kind} address")
        self.kind = kind


@dataclass(frozen=True)
class Answer:
    """What was answered; names of headers are in lower case, repeated ones are joined.

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


class _Deadline:
    """The time by which a call must end."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._ends = seconds, monotonic() + seconds

    def left(self, most: float | None = None) -> float:
        """Return the seconds left, at most `most`. Raises `TimeoutError` if there are none."""
        seconds = self._ends - monotonic()
        if seconds <= 0:
            raise self.error()
        return seconds if most is None else min(seconds, most)

    def error(self) -> TimeoutError:
        return TimeoutError(f"it took longer than {self._seconds:g} s")


class _Peer(io.RawIOBase):
    """A connection for `http.client` that fails after its deadline or too many bytes.

    `http.client` closes its socket before the answer is read if no other answer follows. So the
    real socket belongs to the caller, who closes it.
    """

    def __init__(self, sock: socket.socket, deadline: _Deadline, most: int) -> None:
        self._sock, self._deadline, self._left = sock, deadline, most

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        self._sock.settimeout(self._deadline.left())
        count = self._sock.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise HTTPException("it sends more than it was asked for")
        return count

    def sendall(self, data: "ReadableBuffer") -> None:
        rest = memoryview(data)
        while rest:
            self._sock.settimeout(self._deadline.left())
            rest = rest[self._sock.send(rest) :]

    def close(self) -> None:
        """Leave the socket to its owner."""


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
    """Send a request, and read at most `read` bytes of the answer's body.

    Redirects are not followed. Link-local addresses and the metadata services of clouds, which
    hand out credentials, are refused; with `only_public`, private and loopback addresses are, too.
    The name is resolved once, and the connection goes to the address that was checked.

    Raises `OSError`, `HTTPException` or `ValueError`, within `seconds`.
    """
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path or "/"
    is_secure, deadline = parts.scheme == "https", _Deadline(seconds)
    port = parts.port or _PORTS["https" if is_secure else "http"]
    sock = _connected(host, port, only_public, deadline)
    try:
        certificate = None
        if is_secure:
            tls = tls or ssl.create_default_context()
            sock = secured = over_tls(sock, tls, host, do_handshake_on_connect=False)
            secured.settimeout(deadline.left())
            secured.do_handshake()
            certificate = secured.getpeercert()
        connection = HTTPConnection(host, port)
        connection.default_port = _PORTS["https" if is_secure else "http"]  # for the Host header
        connection.sock = _Peer(sock, deadline, _MOST_HEADERS + 8 * read)
        target = f"{path}?{parts.query}" if parts.query else path
        always = {"Cache-Control": "no-store", "User-Agent": "sso", "Connection": "close"}
        connection.request(method, target, body, {**(headers or {}), **always})
        answer = connection.getresponse()
        content = answer.read(read) if read else b""
        return Answer(answer.status, _joined(answer.getheaders()), certificate or {}, content)
    except TimeoutError:
        raise deadline.error() from None
    finally:
        sock.close()


def _joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Join the values of headers with the same name, in their order (RFC 9110 §5.3)."""
    joined: dict[str, str] = {}
    for name, value in headers:
        before = joined.get(name.lower())
        joined[name.lower()] = value if before is None else f"{before}, {value}"
    return joined


def over_tls(
    sock: socket.socket, tls: ssl.SSLContext, host: str, *, do_handshake_on_connect: bool = True
) -> ssl.SSLSocket:
    """Begin TLS on a connected socket, which is used up. Raises `OSError`."""
    sock.getpeername()  # `wrap_socket` leaves a socket open whose peer is gone
    return tls.wrap_socket(
        sock, server_hostname=host, do_handshake_on_connect=do_handshake_on_connect
    )


def connect(host: str, port: int, seconds: float = CONNECT_SECONDS) -> socket.socket:
    """Connect to a host whose address may be called. Raises `OSError`."""
    return _connected(host, port, only_public=False, deadline=_Deadline(seconds))


def _connected(host: str, port: int, only_public: bool, deadline: _Deadline) -> socket.socket:
    """Connect to the first address that is allowed and answers."""
    trouble: OSError = OSError("its name has no address")
    answers = _resolver.addresses(host, port, deadline.left())
    for family, kind, protocol, _, endpoint in answers[:MOST_ADDRESSES]:
        if forbidden := addresses.forbidden(str(endpoint[0]), only_public):
            trouble = ForbiddenPeer(forbidden)
            continue
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(deadline.left(CONNECT_SECONDS))
            sock.connect(endpoint)
        except OSError as error:
            sock.close()
            trouble = error
        else:
            return sock
    raise trouble
