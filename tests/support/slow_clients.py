"""Many connections that send next to nothing, each opened again when the server ends it."""

import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic

import requests

TOKEN = b"POST /api/auth/oauth2/token HTTP/1.1\r\nHost: x\r\n"
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
RATE = 300  # connections that are opened again, a second
# The beginning of a request, and what is sent again and again.
SLOW = {
    "nothing": (b"", b""),
    "head": (b"GET /api/auth/oauth2/jwks HTTP/1.1\r\nHost: x\r\nX-A: ", b"a"),
    "silent body": (TOKEN + FORM + b"Content-Length: 100\r\n\r\na", b""),
    "body": (TOKEN + FORM + b"Content-Length: 5000\r\n\r\na=", b"x"),
    "chunks": (TOKEN + FORM + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "large body": (TOKEN + FORM + b"Content-Length: 262144\r\n\r\n" + 200_000 * b"x", b"x"),
    "kept": (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b""),
}


class Attack:
    """The connections, in a thread of their own."""

    def __init__(
        self, port: int, count: int, kind: str, source: str = "127.0.0.2", rate: int = RATE
    ) -> None:
        self.port, self.source, self.rate = port, source, rate
        self.beginning, self.drip = SLOW[kind]
        self.count, self.opened = count, 0
        self._selector = selectors.DefaultSelector()
        self._end = Event()

    def add(self, field: bytes) -> None:
        """Send this header field, too."""
        line, rest = self.beginning.split(b"\r\n", 1)
        self.beginning = line + b"\r\n" + field + rest

    def _open(self) -> None:
        connection = socket.socket()
        connection.bind((self.source, 0))
        connection.setblocking(False)
        with suppress(BlockingIOError):
            connection.connect(("127.0.0.1", self.port))
        self._selector.register(connection, selectors.EVENT_WRITE)
        self.opened += 1

    def run(self) -> None:
        for _ in range(self.count):
            self._open()
        self._missing = 0
        began, reopened, next_drip = monotonic(), 0, monotonic() + 1
        while not self._end.is_set():
            for key, event in self._selector.select(0.2):
                self._go_on(key.fileobj, event)
            while self._missing and reopened < (monotonic() - began) * self.rate:
                self._missing -= 1
                reopened += 1
                self._open()
            if self.drip and monotonic() > next_drip:
                next_drip = monotonic() + 1
                for key in list(self._selector.get_map().values()):
                    with suppress(OSError):
                        assert isinstance(key.fileobj, socket.socket)
                        key.fileobj.send(self.drip)
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()

    def _go_on(self, connection: object, event: int) -> None:
        assert isinstance(connection, socket.socket)
        try:
            if event & selectors.EVENT_WRITE:
                if self.beginning:
                    connection.send(self.beginning)
                self._selector.modify(connection, selectors.EVENT_READ)
                return
            if connection.recv(65536):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._selector.unregister(connection)
        connection.close()
        self._missing += 1

    @contextmanager
    def running(self) -> Iterator["Attack"]:
        thread = Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self._end.set()
            thread.join()


def unanswered(url: str, count: int, within: float = 3.0) -> int:
    """How many of these requests get no answer in time."""
    failed = 0
    for _ in range(count):
        end = monotonic() + 0.5
        try:
            failed += not requests.get(url, timeout=within).ok
        except requests.RequestException:
            failed += 1
        Event().wait(max(0, end - monotonic()))
    return failed
