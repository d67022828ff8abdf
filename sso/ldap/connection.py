"""A conversation with one server: TLS, bind, search. Bounded in time and size.

Referrals are not followed: only servers in the settings answer for the directory.
"""

import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import Self, TypeVar

from sso.ldap import messages
from sso.ldap.messages import (
    INVALID_CREDENTIALS,
    NO_SUCH_OBJECT,
    POLICY_CONTROL,
    SIZE_LIMIT,
    SUCCESS,
    Entry,
    Result,
)
from sso.process import addresses, http_call
from sso.process.resolver import Resolver

LARGEST_ANSWER = 1024 * 1024  # bytes of all entries of one search
_CONNECT_SECONDS = 2.0
_MOST_ADDRESSES = 4  # of a name
_resolver = Resolver()
_ABANDON = 0x50
_START_TLS = "1.3.6.1.4.1.1466.20037"
(
    _BIND, _BIND_DONE, _UNBIND, _SEARCH, _ENTRY, _SEARCH_DONE, _REFERENCE, _EXTENDED, _EXTENDED_DONE
) = (0x60, 0x61, 0x42, 0x63, 0x64, 0x65, 0x73, 0x77, 0x78)  # fmt: skip
_SUBTREE = 2

T = TypeVar("T")


class Unavailable(Exception):
    """The server is away, too slow, not trusted, or does not speak LDAP; `str()` says what."""


class Refused(Exception):
    """The server answered with an error to what the settings ask of it."""


@dataclass(frozen=True)
class Server:
    """Where a server is. `tls`: "ldaps", "starttls" or "none" (on this machine only)."""

    host: str
    port: int
    tls: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass
class Found:
    """What a search found; `is_complete`: the limit of entries was not reached."""

    entries: list[Entry] = field(default_factory=list)
    is_complete: bool = True


class Connection:
    """An open connection; `seconds` are for all that is done with it.

    Raises `Unavailable`, also from each method.
    """

    def __init__(self, server: Server, tls: ssl.SSLContext, seconds: float) -> None:
        self._server, self._ends, self._id, self._received = server, monotonic() + seconds, 0, b""
        self._abandoned = 0  # nothing up to this request is read any more
        self.certificate_ends: datetime | None = None
        self._sock = self._attempt(lambda: _connected(server, seconds))
        try:
            if server.tls == "starttls":
                self._request(
                    messages.encode(_EXTENDED, messages.encode(0x80, _START_TLS.encode()))
                )
                _, contents, _ = self._answer(_EXTENDED_DONE)
                result = self._read(messages.result, contents)
                if result.code != SUCCESS:
                    raise Unavailable(f"{server} refuses StartTLS")
                if self._received:  # sent by somebody on the path, to be read as if from within TLS
                    raise Unavailable(f"{server} sent more before TLS began")
            if server.tls != "none":
                self._secure(tls)
        except BaseException:
            self._sock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if kind is None:
            with suppress(Unavailable):
                self._request(messages.encode(_UNBIND))
        self._sock.close()

    def bind(self, dn: str, password: str) -> Result:
        """Sign in. Without a name, or without a password, servers let anybody in: never sent."""
        if not dn or not password or "\0" in password:
            return Result(INVALID_CREDENTIALS, "no name or no password")
        control = messages.encode(messages.SEQUENCE, messages.text(POLICY_CONTROL))
        simple = messages.encode(0x80, password.encode("utf-8", "surrogatepass"))
        bind = messages.encode(_BIND, messages.integer(3), messages.text(dn), simple)
        self._request(bind, messages.encode(0xA0, control))
        _, contents, controls = self._answer(_BIND_DONE)
        result = self._read(messages.result, contents)
        return replace(result, policy=self._read(messages.policy_error, controls))

    def search(
        self,
        base: str,
        condition: bytes,
        attributes: Iterable[str],
        most: int,
    ) -> Found:
        """Return the matching entries below `base`, at most this many. Raises `Refused`."""
        seconds = max(1, int(self._ends - monotonic()))
        limits = (messages.integer(most), messages.integer(seconds), messages.boolean(False))
        names = messages.encode(messages.SEQUENCE, *(messages.text(name) for name in attributes))
        how = (
            messages.integer(_SUBTREE, messages.ENUMERATED),
            messages.integer(0, messages.ENUMERATED),
        )
        self._request(
            messages.encode(_SEARCH, messages.text(base), *how, *limits, condition, names)
        )
        entries, size = Found(), 0
        while True:
            tag, contents, _ = self._answer(_ENTRY, _REFERENCE, _SEARCH_DONE)
            size += len(contents)
            if size > LARGEST_ANSWER:
                raise Unavailable(f"{self._server} sends more than it was asked for")
            if tag == _ENTRY and len(entries.entries) == most:  # Samba knows no limit
                self._abandoned = self._id
                self._request(messages.integer(self._id, _ABANDON))
                entries.is_complete = False
                return entries
            if tag == _ENTRY:
                entries.entries.append(self._read(messages.entry, contents))
            elif tag == _SEARCH_DONE:
                break
        result = self._read(messages.result, contents)
        if result.code not in (SUCCESS, SIZE_LIMIT):
            text = "there is no such entry" if result.code == NO_SUCH_OBJECT else result.diagnostic
            raise Refused(f"{self._server} refuses to search in {base!r}: {result.code} {text}")
        entries.is_complete = result.code == SUCCESS
        return entries

    def _secure(self, tls: ssl.SSLContext) -> None:
        self._sock.settimeout(self._left())

        def wrap() -> ssl.SSLSocket:
            return http_call.over_tls(self._sock, tls, self._server.host)

        self._sock = secured = self._attempt(wrap)
        ends = (secured.getpeercert() or {}).get("notAfter")
        if isinstance(ends, str):
            self.certificate_ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(ends), UTC)

    def _request(self, operation: bytes, controls: bytes = b"") -> None:
        self._id += 1
        message = messages.encode(
            messages.SEQUENCE, messages.integer(self._id), operation, controls
        )
        self._sock.settimeout(self._left())
        self._attempt(lambda: self._sock.sendall(message))

    def _answer(self, *expected: int) -> tuple[int, bytes, bytes]:
        """Read the answer to the last request: its tag, contents and controls."""
        number, tag, contents, controls = self._message()
        while 0 < number <= self._abandoned:
            number, tag, contents, controls = self._message()
        if number == 0:
            raise Unavailable(f"{self._server} ends the connection")
        if number != self._id or tag not in expected:
            raise Unavailable(f"{self._server} answers another question")
        return tag, contents, controls

    def _message(self) -> tuple[int, int, bytes, bytes]:
        while (header := self._read(messages.header, self._received)) is None or (
            len(self._received) < header[2]
        ):
            if header and header[2] > LARGEST_ANSWER:
                raise Unavailable(f"{self._server} sends more than it was asked for")
            self._sock.settimeout(self._left())
            more = self._attempt(lambda: self._sock.recv(65536))
            if not more:
                raise Unavailable(f"{self._server} closed the connection")
            self._received += more
        message, self._received = self._received[: header[2]], self._received[header[2] :]
        return self._read(messages.split, message)

    def _left(self) -> float:
        seconds = self._ends - monotonic()
        if seconds <= 0:
            raise Unavailable(f"{self._server} is too slow")
        return seconds

    def _attempt(self, operation: Callable[[], T]) -> T:
        try:
            return operation()
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message
            raise Unavailable(f"the certificate of {self._server} is refused: {why}") from None
        except TimeoutError:
            raise Unavailable(f"{self._server} is too slow") from None
        except (OSError, ValueError) as error:
            raise Unavailable(f"{self._server}: {error}"[:200]) from None

    def _read(self, parse: Callable[[bytes], T], data: bytes) -> T:
        try:
            return parse(data)
        except ValueError as error:  # `messages.Malformed`, or a name that is not UTF-8
            raise Unavailable(f"{self._server} does not speak LDAP: {error}"[:200]) from None


def _connected(server: Server, seconds: float) -> socket.socket:
    trouble: OSError = OSError("its name has no address")
    ends = monotonic() + seconds
    endpoints = _resolver.addresses(server.host, server.port, min(seconds, _CONNECT_SECONDS))
    for family, kind, protocol, _, endpoint in endpoints[:_MOST_ADDRESSES]:
        if reason := addresses.forbidden(str(endpoint[0]), only_public=False):
            trouble = OSError(f"its name leads to a {reason} address")
            continue
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(0.001, min(ends - monotonic(), _CONNECT_SECONDS)))
            sock.connect(endpoint)
        except OSError as error:
            sock.close()
            trouble = error
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise trouble
