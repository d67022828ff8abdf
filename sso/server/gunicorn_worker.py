"""gunicorn's threaded worker, with an end to each wait for a client.

gunicorn waits forever for a request whose bytes arrive one at a time, and for a client that does
not take its answer, in a thread each; and for up to two seconds, in the loop that accepts all
connections, for a client that leaves its side open after the last answer.
"""

import errno
import socket
from time import monotonic
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

ARRIVAL = 15.0  # seconds for a whole request, its head and its body together
SENDING = 20.0  # seconds for each piece of an answer to be taken
LINGER = 1.0  # seconds for a client to close after the last answer
_MOST_DRAINED = 64 * 1024  # bytes
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n"
    b"X-Content-Type-Options: nosniff\r\n\r\n"
)


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Handles one request of a connection in a thread, and lets it go in time."""

    def handle(self, conn: TConn) -> Any:
        """What the connection does next: false closes it."""
        if self.cfg.is_ssl:  # encrypted by gunicorn itself, which is not how we run it
            return super().handle(conn)
        if not isinstance(conn.sock, TimedSocket):
            conn.sock = TimedSocket(conn.sock)
        conn.sock.start()
        goes_on = super().handle(conn)
        if goes_on and not conn.sock.is_late:
            return goes_on
        conn.sock.finish()  # here, and not in the loop that accepts connections
        return False


class TimedSocket:
    """A client's socket. A request that is late ends as if the client had closed."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._deadline = 0.0
        self._is_finished = self._has_answered = False
        self.is_late = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def start(self) -> None:
        """A request begins."""
        self._deadline = monotonic() + ARRIVAL
        self._has_answered = False

    def recv(self, size: int) -> bytes:
        if self._is_finished or self.is_late:
            return b""
        shortest, left = self._sock.gettimeout(), self._deadline - monotonic()
        if shortest is not None and shortest < left:
            return self._sock.recv(size)  # gunicorn waits for less
        if left > 0:
            self._sock.settimeout(left)
            try:
                return self._sock.recv(size)
            except TimeoutError:
                pass
            finally:
                self._sock.settimeout(shortest)
        self.is_late = True
        return b""

    def sendall(self, data: bytes) -> None:
        self._has_answered = True
        usual = self._sock.gettimeout()
        self._sock.settimeout(SENDING)
        try:
            self._sock.sendall(data)
        except TimeoutError:
            raise BrokenPipeError(errno.EPIPE, "the client does not take its answer") from None
        finally:
            self._sock.settimeout(usual)

    def finish(self) -> None:
        """Wait for the client to close, so that it gets all of the answer (RFC 9112 §9.6)."""
        try:
            if self.is_late and not self._has_answered:
                self._sock.settimeout(LINGER)
                self._sock.sendall(_LATE)
            self._sock.shutdown(socket.SHUT_WR)
            end, drained = monotonic() + LINGER, 0
            while drained < _MOST_DRAINED and (left := end - monotonic()) > 0:
                self._sock.settimeout(left)
                if not (data := self._sock.recv(4096)):
                    break
                drained += len(data)
        except OSError:
            pass  # gone already, or not in time
        self._is_finished = True  # gunicorn, which closes it, has nothing to wait for
