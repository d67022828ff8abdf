"""gunicorn's threaded worker, with an end to each wait for a client.

gunicorn waits forever for a request whose bytes arrive one at a time, and for a client that does
not take its answer, in a thread each; and for up to two seconds, in the loop that accepts all
connections, for a client that leaves its side open after the last answer.

After each request it hands a kept connection back to that loop, and asks the loop for the next one.
A thread that waits a moment itself saves both: 9 % of the CPU time of authorize and 16 % of that of
userinfo, over connections that are in use without pause.
"""

import errno
import select
import socket
from contextlib import suppress
from time import monotonic
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from sso.process import concurrency

ARRIVAL = 15.0  # seconds for a whole request, its head and its body together
SENDING = 20.0  # seconds for each piece of an answer to be taken
MOMENT = 0.01  # seconds for the next request over a kept connection
LINGER = 1.0  # seconds for a client to close after the last answer
_MOST_DRAINED = 64 * 1024  # bytes
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n"
    b"X-Content-Type-Options: nosniff\r\n\r\n"
)


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Handles one request of a connection in a thread, and lets it go in time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: set[TConn] = set()

    def handle(self, conn: TConn) -> Any:
        """What the connection does next: false closes it."""
        if self.cfg.is_ssl:  # encrypted by gunicorn itself, which is not how we run it
            return super().handle(conn)
        if not isinstance(conn.sock, TimedSocket):
            conn.sock = TimedSocket(conn.sock)
        while True:
            conn.sock.start()
            goes_on = super().handle(conn)
            if not (conn.sock.flush() and goes_on) or conn.sock.is_late:
                conn.sock.finish()  # here, and not in the loop that accepts connections
                return False
            if not self._is_used_again(conn):
                return goes_on

    def _is_used_again(self, conn: TConn) -> bool:
        """Whether the next request over a kept connection comes in a moment."""
        if not (conn.initialized and self.alive) or len(self._kept) >= concurrency.MAX_CONCURRENT:
            return False
        self._kept.add(conn)
        try:
            return bool(conn.sock.is_ready(select.POLLIN, MOMENT))
        finally:
            self._kept.discard(conn)


class TimedSocket:
    """A client's socket. A request that is late ends as if the client had closed.

    Each system call lets another thread take the interpreter, so there are few: the socket itself
    never blocks, whatever gunicorn sets, and the head of an answer is sent with the body.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._timeout: float | None = None
        self._deadline = 0.0
        self._unsent = b""
        self._is_finished = self._has_answered = False
        self.is_late = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def gettimeout(self) -> float | None:
        return self._timeout

    def start(self) -> None:
        """A request begins."""
        self._deadline = monotonic() + ARRIVAL
        self._has_answered = False

    def recv(self, size: int) -> bytes:
        if self._is_finished or self.is_late:
            return b""
        left = self._deadline - monotonic()
        if left > 0:
            with suppress(BlockingIOError):
                return self._sock.recv(size)
            usual = left if self._timeout is None else min(self._timeout, left)
            if self.is_ready(select.POLLIN, usual):
                return self._sock.recv(size)
            if usual < left:  # gunicorn waits for less
                raise TimeoutError
        self.is_late = True
        return b""

    def sendall(self, data: bytes) -> None:
        is_head = not self._has_answered and data.endswith(b"\r\n\r\n")
        self._has_answered = True
        self._unsent += data
        if not is_head and not self.flush():
            raise BrokenPipeError(errno.EPIPE, "the client does not take its answer")

    def flush(self) -> bool:
        """Send what was kept back. False: the client does not take it, or is gone."""
        data, self._unsent = memoryview(self._unsent), b""
        end = 0.0
        try:
            while data:
                try:
                    data = data[self._sock.send(data) :]
                except BlockingIOError:
                    end = end or monotonic() + SENDING
                    left = end - monotonic()
                    if left <= 0 or not self.is_ready(select.POLLOUT, left):
                        return False
        except OSError:
            return False
        return True

    def finish(self) -> None:
        """Wait for the client to close, so that it gets all of the answer (RFC 9112 §9.6)."""
        try:
            if self.is_late and not self._has_answered:
                self._sock.send(_LATE)
            self._sock.shutdown(socket.SHUT_WR)
            end, drained = monotonic() + LINGER, 0
            while drained < _MOST_DRAINED and (left := end - monotonic()) > 0:
                if not self.is_ready(select.POLLIN, left) or not (data := self._sock.recv(4096)):
                    break
                drained += len(data)
        except OSError:
            pass  # gone already
        self._is_finished = True  # gunicorn, which closes it, has nothing to wait for

    def is_ready(self, event: int, seconds: float) -> bool:
        waiting = select.poll()
        waiting.register(self._sock, event)
        return bool(waiting.poll(seconds * 1000))
