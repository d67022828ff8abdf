"""Tracks how much of a request has arrived, and which connections are waiting.

gunicorn's parser alone decides what the bytes mean and refuses what is malformed. This file only
says when the parser no longer has to wait. If it is wrong, a connection ends too early; the parser
still reads the same bytes.
"""

import re
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from sso.process.concurrency import MAX_BODY, max_body
from sso.ratelimit import networks

MOST_HEAD = 64 * 1024  # bytes, of request line and headers
# Bytes of a chunked body with its chunk sizes.
_MOST_CHUNKED = 2 * MAX_BODY
_MOST_SIZE_LINE = 8190  # bytes: gunicorn refuses longer ones

TOO_LARGE_HEAD = "431 Request Header Fields Too Large"
TOO_LARGE_BODY = "413 Content Too Large"

# Nothing in them is tried in two ways: a head can be long, and the loop waits meanwhile.
_FIELD = re.compile(
    rb"\r\n(content-length|transfer-encoding|expect|x-sso-head-only)[ \t]*:([^\r\n]*)", re.I
)
_FORWARDED = re.compile(rb"\r\nx-forwarded-for[ \t]*:([^\r\n]*)", re.I)
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;|$)")
# The binary header of the PROXY protocol begins with the end of a head.
_PROXY_V2 = b"\r\n\r\n\x00\r\nQUIT\n"


class Arrival:
    """The bytes that arrived over a connection, from the beginning of a request."""

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = data
        self.is_complete = False  # the parser can read the request without waiting
        self.expects_continue = False
        self.refusal = ""  # the status line of an answer that needs no parser
        self._searched = 0  # where to go on looking for the end of the head or of a chunk size
        self._body = 0  # where the body begins; 0: the head is not complete
        self._end: int | None = None  # of the body; None if it is chunked
        self._decoded = 0  # bytes of previous chunks
        self._trailers = 0  # where to go on looking for the end of the trailers
        self._network: str | None = None
        if data:
            self._examine()

    @property
    def has_head(self) -> bool:
        return self._body > 0

    def add(self, data: bytes) -> None:
        if not self.data:
            self.data = data
        else:
            if isinstance(self.data, bytes):
                self.data = bytearray(self.data)
            self.data += data
        if not self.is_complete:
            self._examine()

    def take(self, size: int) -> bytes:
        """Remove the next bytes, for the parser."""
        data = bytes(self.data[:size])
        if isinstance(self.data, bytearray):
            del self.data[:size]  # copies nothing; an upload is taken in many pieces
        else:
            self.data = self.data[size:]
        return data

    def network(self, proxies: int) -> str:
        """Return the network of the client as trusted proxies report it, or an empty string."""
        if not proxies or not self._body:
            return ""
        if self._network is None:
            self._network = ""
            values = b",".join(_FORWARDED.findall(self.data[: self._body])).split(b",")
            if len(values) >= proxies and values[-proxies].strip():
                self._network = networks.widest(values[-proxies].decode("latin-1").strip())
        return self._network

    def _examine(self) -> None:
        if not self._body and not self._find_head():
            return
        if self._end is None:
            self._walk_chunks()
        elif len(self.data) >= self._end:
            self.is_complete = True

    def _find_head(self) -> bool:
        """Look for the end of the head, and read how long the body is."""
        data, start = self.data, 0
        if data[:12] == _PROXY_V2:
            start = 16 + int.from_bytes(data[14:16], "big")
        end = data.find(b"\r\n\r\n", max(self._searched, start))
        if end < 0 or end > MOST_HEAD:
            if len(data) > MOST_HEAD:
                self.refusal = TOO_LARGE_HEAD
            # gunicorn refuses other line endings.
            elif not start and _BARE_LINE_FEED.search(data, self._searched):
                self.is_complete = True
            self._searched = max(len(data) - 3, 0)
            return False
        self._body = self._searched = end + 4
        self._end = self._body
        fields = {
            name.lower(): value.strip(b" \t")
            for name, value in _FIELD.findall(data[start : end + 2])
        }
        if fields:
            self._read_fields(fields)
        return True

    def _read_fields(self, fields: dict[bytes, bytes]) -> None:
        length = fields.get(b"content-length", b"0")
        if b"transfer-encoding" in fields:
            # gunicorn refuses other codings, and both fields together.
            coding = fields[b"transfer-encoding"].lower()
            if coding == b"chunked" and b"content-length" not in fields:
                self._end = None
        elif length.isdigit() and len(length) < 10 and int(length) <= max_body(self._path()):
            self._end = self._body + int(length)
        # The application refuses a longer body by its declared length.
        expected = fields.get(b"expect", b"").lower()
        if expected not in (b"", b"100-continue") or b"x-sso-head-only" in fields:
            self._end = self._body
        line_end = self.data.find(b"\r\n", 2)
        is_http_1_0 = self.data[:line_end].endswith(b"HTTP/1.0")
        self.expects_continue = expected == b"100-continue" and not is_http_1_0

    def _path(self) -> str:
        """Return the path of the request line as it was sent, without its query."""
        parts = self.data[: self.data.find(b"\r\n", 2)].split(b" ")
        return bytes(parts[1]).partition(b"?")[0].decode("latin-1") if len(parts) == 3 else ""

    def _walk_chunks(self) -> None:
        data = self.data
        while not self.is_complete:
            line_end = data.find(b"\r\n", self._searched)
            if line_end < 0:
                # gunicorn refuses a longer line.
                self.is_complete = len(data) - self._searched > _MOST_SIZE_LINE
                break
            size = _SIZE.match(data[self._searched : line_end])
            if not size:
                self.is_complete = True  # gunicorn refuses it
                break
            length = int(size[1], 16)
            if not length:  # the last one
                self.is_complete = data.find(b"\r\n\r\n", max(line_end, self._trailers)) >= 0
                self._trailers = len(data) - 3
                break
            if self._decoded + length > MAX_BODY:
                # One byte too many lets the application refuse the body.
                self.is_complete = len(data) >= line_end + 3 + MAX_BODY - self._decoded
                break
            chunk_end = line_end + 2 + length + 2
            if len(data) < chunk_end:
                break
            self._decoded += length
            self._searched = chunk_end
        if not self.is_complete and len(data) - self._body > _MOST_CHUNKED:
            self.refusal = TOO_LARGE_BODY


C = TypeVar("C", bound=Hashable)


class Waiting(Generic[C]):
    """Waiting connections of each network, those that have waited longest first."""

    def __init__(self) -> None:
        self._networks: dict[str, dict[C, None]] = {}
        self._network_of: dict[C, str] = {}

    def __len__(self) -> int:
        return len(self._network_of)

    def __iter__(self) -> Iterator[C]:
        return iter(self._network_of)

    def __contains__(self, connection: object) -> bool:
        return connection in self._network_of

    def add(self, connection: C, network: str) -> None:
        """Add a connection; one that is already waiting keeps its place."""
        if self._network_of.get(connection) != network:
            self.discard(connection)
            self._network_of[connection] = network
            self._networks.setdefault(network, {})[connection] = None

    def discard(self, connection: C) -> None:
        network = self._network_of.pop(connection, None)
        if network is not None:
            of_network = self._networks[network]
            del of_network[connection]
            if not of_network:
                del self._networks[network]

    def longest(self) -> C:
        """Return the connection to drop: the oldest of the network that has the most."""
        largest = max(self._networks, key=lambda network: len(self._networks[network]))
        return next(iter(self._networks[largest]))
