"""gunicorn's threaded worker, with threads that do not wait for slow clients.

gunicorn gives a connection to a thread at its first byte. The thread waits for the rest of the
request, and later for the client to take the answer, so a few hundred slow connections hold all
threads. Here the loop that accepts connections also reads requests and sends answers: a thread gets
a complete request, and returns an answer.

The number of waiting connections is limited. Beyond the limit, the worker drops the oldest
connection of the network that has the most, so that one client cannot drop the connections of
others, and fast clients are hardly ever dropped.

gunicorn also returns a kept connection to that loop after each request, and waits there for the
next one. A thread that waits for a moment itself saves this: 9 % of the CPU time of authorize and
16 % of that of userinfo, over connections that are in constant use.
"""

import errno
import logging
import select
import selectors
import socket
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from sso.process import concurrency
from sso.ratelimit import networks
from sso.server.arrival import Arrival, Waiting

logger = logging.getLogger("sso.server")

ARRIVAL = 15.0  # seconds for a whole request, its head and its body together
SENDING = 20.0  # seconds for the client to take each piece of an answer
MOMENT = 0.01  # seconds for the next request over a kept connection
LINGER = 1.0  # seconds for a client to close, or to send more, after the last answer
STOPPING = 2.0  # seconds for a request over an idle connection while the worker stops
SMALL = 16 * 1024  # bytes that any waiting connection may have in memory
MOST_LARGE = 48  # connections with more than that
MOST_LARGE_BYTES = 24 * 1024 * 1024  # of all these together
_MOST_READ = 64 * 1024  # bytes at once
_MOST_UNSENT = 1024 * 1024  # bytes of an answer that the loop keeps; a thread waits with more
# Bytes of a request that was refused by its length. A client that is reset while it sends does not
# see the answer, and a proxy reports that the server is away.
_MOST_DRAINED = 2 * concurrency.MAX_UPLOAD
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LATE = "408 Request Timeout"
_FULL = "503 Service Unavailable"
_REFUSAL = (
    "HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: 0\r\nX-Content-Type-Options: nosniff\r\n"
)


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """A worker that collects requests and sends the rest of answers in its loop, not in threads."""

    trusted_proxies = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: set[TConn] = set()
        self._waiting: Waiting[TConn] = Waiting()
        self._large: Waiting[TConn] = Waiting()  # those of `_waiting` with much in memory
        self._large_in_threads: dict[TConn, int] = {}  # with the bytes that arrived
        self._next_look = 0.0

    @property
    def most_waiting(self) -> int:
        """The limit at which the loop still accepts connections while all threads are busy."""
        return max(int(self.cfg.worker_connections - self.cfg.threads), 1)

    # In a thread.

    def handle(self, conn: TConn) -> Any:
        """Handle all complete requests; return whether to keep the connection."""
        if self.cfg.is_ssl:  # encrypted by gunicorn itself, which is not how we run it
            return super().handle(conn)
        client, conn.data_ready = conn.sock, True  # gunicorn need not wait for data
        while client.arrival.is_complete or self._comes_in_a_moment(conn):
            client.start()
            goes_on = super().handle(conn)
            client.send_now()
            if not goes_on or client.is_cut or client.is_gone:
                return self._finish(conn)
            client.arrival = Arrival(conn.parser.unreader.take_buffered() + client.arrival.data)
            if client.unsent:  # the client does not take the answer
                return True
        return True

    def _comes_in_a_moment(self, conn: TConn) -> bool:
        """Return whether a request is complete, after a short wait if few threads are waiting."""
        client = conn.sock
        if client.is_gone or client.arrival.refusal:
            return False
        if self.alive and len(self._kept) < concurrency.MAX_CONCURRENT:
            self._kept.add(conn)
            try:
                if not client.is_ready(select.POLLIN, MOMENT):
                    return False
            finally:
                self._kept.discard(conn)
        client.read()
        return bool(client.arrival.is_complete)

    def _finish(self, conn: TConn) -> bool:
        """Announce the end of the connection; most clients close it at once."""
        client = conn.sock
        if not client.unsent:
            client.shut_down()
            if len(self._kept) < concurrency.MAX_CONCURRENT:
                self._kept.add(conn)
                try:
                    if client.is_ready(select.POLLIN, MOMENT):
                        client.drain()
                finally:
                    self._kept.discard(conn)
        client.is_last = True
        return False

    # In the loop.

    def enqueue_req(self, conn: TConn) -> None:
        if not self.cfg.is_ssl and not isinstance(conn.sock, ClientSocket):
            conn.sock = ClientSocket(conn.sock)
        super().enqueue_req(conn)

    def finish_request(self, conn: TConn, fs: "Future[Any]") -> None:
        """Wait for the next step: the client takes the answer, sends a request, or closes."""
        if self.cfg.is_ssl:
            super().finish_request(conn, fs)
            return
        self._large_in_threads.pop(conn, None)
        if fs.cancelled() or fs.exception():
            conn.sock.is_last = True
        if conn.sock.arrival.is_complete and not conn.sock.is_last and not conn.sock.unsent:
            self.enqueue_req(conn)
        else:
            self._wait(conn)

    def _wait(self, conn: TConn) -> None:
        client = conn.sock
        event = selectors.EVENT_READ
        if client.arrival.refusal and not (client.is_last or client.unsent):
            client.refuse(client.arrival.refusal)
        if client.is_last and not client.unsent:
            client.shut_down()
        if client.is_gone:
            self._close(conn)
            return
        if client.unsent:
            event, seconds = selectors.EVENT_WRITE, SENDING
        elif client.is_last:
            seconds = LINGER
            client.drained_by = client.drained_by or monotonic() + ARRIVAL
        else:
            idle = (self.cfg.keepalive or ARRIVAL) if self.alive else STOPPING
            seconds = ARRIVAL if client.arrival.data else idle
        client.deadline = monotonic() + seconds
        self.poller.register(client, event, partial(self._go_on, conn))
        self._place(conn)

    def _place(self, conn: TConn) -> None:
        """Add the connection to those of its network; drop one if too many are waiting."""
        client = conn.sock
        network = client.arrival.network(self.trusted_proxies) or client.network_of(conn.client)
        self._waiting.add(conn, network)
        if len(client.arrival.data) > SMALL or len(client.unsent) > SMALL:
            self._large.add(conn, network)
        if len(self._waiting) > self.most_waiting:
            self._drop(self._waiting.longest())
        while self._large and self._holds_too_much():
            self._drop(self._large.longest())

    def _holds_too_much(self) -> bool:
        in_threads = self._large_in_threads
        if len(self._large) + len(in_threads) > MOST_LARGE:
            return True
        waiting = sum(len(conn.sock.arrival.data) for conn in self._large)
        return waiting + sum(in_threads.values()) > MOST_LARGE_BYTES

    def _go_on(self, conn: TConn, _: Any) -> None:
        """Read or send as much as possible now."""
        if conn not in self._waiting:  # dropped by what came before it in this round of the loop
            return
        client = conn.sock
        if client.unsent:
            if client.send_now():
                client.deadline = monotonic() + SENDING
            if not client.unsent or client.is_gone:
                self._next(conn)
        elif client.is_last:
            client.drain()
            if client.is_gone:
                self._next(conn)
            elif self.alive:
                client.deadline = min(monotonic() + LINGER, client.drained_by)
        else:
            self._collect(conn)

    def _collect(self, conn: TConn) -> None:
        client = conn.sock
        was_idle, had_head = not client.arrival.data, client.arrival.has_head
        client.read()
        arrival = client.arrival
        if arrival.is_complete:
            is_large = conn in self._large
            self._leave(conn)
            if is_large:
                self._large_in_threads[conn] = len(arrival.data)
            self.enqueue_req(conn)
        elif client.is_gone or arrival.refusal:
            self._next(conn)
        else:
            if was_idle:
                client.deadline = monotonic() + ARRIVAL
            if arrival.has_head != had_head or len(arrival.data) > SMALL:
                self._place(conn)

    def _next(self, conn: TConn) -> None:
        """End this wait, and begin the next step."""
        self._leave(conn)
        client = conn.sock
        if client.arrival.is_complete and not client.is_last and not client.is_gone:
            self.enqueue_req(conn)
        else:
            self._wait(conn)

    def _leave(self, conn: TConn) -> None:
        self._waiting.discard(conn)
        self._large.discard(conn)
        with suppress(OSError, KeyError, ValueError):
            self.poller.unregister(conn.sock)

    def _drop(self, conn: TConn) -> None:
        """Close a connection to make room."""
        self._leave(conn)
        if conn.sock.arrival.data and not conn.sock.is_last:
            conn.sock.refuse(_FULL)
        self._close(conn)

    def _close(self, conn: TConn) -> None:
        self.nr_conns -= 1
        conn.close()

    def murder_pending(self) -> None:
        """End waits that have timed out. gunicorn calls this after each round of its loop."""
        super().murder_pending()
        now = monotonic()
        if now < self._next_look:
            return
        self._next_look = now + min(LINGER, ARRIVAL) / 2
        for conn in list(self._waiting):
            client = conn.sock
            is_idle = not (client.unsent or client.is_last or client.arrival.data)
            if is_idle and not self.alive:
                client.deadline = min(client.deadline, now + STOPPING)
            if client.deadline > now:
                continue
            self._leave(conn)
            if client.unsent or client.is_last or is_idle:
                self._close(conn)
            else:
                if client.arrival.has_head:
                    logger.info("408: the body of a request did not arrive in time")
                client.refuse(_LATE)
                self._wait(conn)


class ClientSocket:
    """A client's socket that never waits: it buffers bytes that arrived or could not be sent.

    Each system call lets another thread take the interpreter, so there are few: the socket never
    blocks, whatever gunicorn sets, and the head of an answer is sent together with the body.
    """

    collects = True  # bodies, without a thread (see `sso.process.concurrency`)

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._network = ""
        self._timeout: float | None = None
        self._has_answered = self._has_continued = self._is_shut_down = False
        self._drained = 0
        self.arrival = Arrival()
        self.unsent = b""
        self.deadline = 0.0  # of the current wait in the loop
        self.drained_by = 0.0  # when the last wait ends, whatever is still sent
        self.is_cut = False  # the parser wanted more than there was
        self.is_last = False  # no more requests will be read
        self.is_gone = False  # the connection is broken, or has been closed by the client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def gettimeout(self) -> float | None:
        return self._timeout

    def network_of(self, peer: Any) -> str:
        """Return the network of a peer, which is an address as `socket` gives it."""
        if not self._network:
            self._network = networks.widest(peer[0] if isinstance(peer, tuple) else None)
        return self._network

    def start(self) -> None:
        """Begin to handle a request."""
        self._has_answered = self.is_cut = False

    def read(self) -> None:
        """Read the bytes that have arrived."""
        try:
            data = self._sock.recv(_MOST_READ)
        except BlockingIOError:
            return
        except OSError:
            self.is_gone = True
            return
        if data:
            self.arrival.add(data)
            self._continue()
        elif self.arrival.data:
            self.arrival.is_complete = True  # the parser sees that it is cut off
        else:
            self.is_gone = True

    def _continue(self) -> None:
        """Tell a client that waits for permission to send the body (RFC 9110 §10.1.1)."""
        arrival = self.arrival
        if arrival.expects_continue and not arrival.is_complete and not self._has_continued:
            self._has_continued = True
            with suppress(OSError):
                self._sock.send(_CONTINUE)

    def send(self, data: bytes) -> int:
        """Send gunicorn's 100 Continue, unless it has been sent."""
        if data != _CONTINUE or not self._has_continued:
            with suppress(BlockingIOError):
                return self._sock.send(data)
        self._has_continued = False
        return len(data)

    def recv(self, size: int) -> bytes:
        """Return the next bytes of the request for the parser, or none, as if the client closed.

        The whole request is here, except for a body that is refused by its length.
        """
        data = self.arrival.take(size)
        self.is_cut |= not data
        return data

    def sendall(self, data: bytes) -> None:
        is_head = not self._has_answered and data.endswith(b"\r\n\r\n")
        self._has_answered = True
        self.unsent += data
        if is_head:
            return
        self.send_now()
        end = monotonic() + SENDING
        while len(self.unsent) > _MOST_UNSENT and not self.is_gone:
            seconds = end - monotonic()
            if seconds <= 0 or not self.is_ready(select.POLLOUT, seconds):
                self.is_gone = True
            elif self.send_now():
                end = monotonic() + SENDING
        if self.is_gone:
            self.unsent = b""
            raise BrokenPipeError(errno.EPIPE, "the client does not take its answer")

    def send_now(self) -> bool:
        """Send as much as the client takes now; return whether it took anything."""
        if not self.unsent:
            return True
        try:
            self.unsent = self.unsent[self._sock.send(self.unsent) :]
        except BlockingIOError:
            return False
        except OSError:
            self.is_gone = True
            return False
        return True

    def refuse(self, status: str) -> None:
        """Send a last answer, without a thread."""
        self.is_last = True
        retry = "Retry-After: 2\r\n" if status == _FULL else ""
        with suppress(OSError):
            self._sock.send(f"{_REFUSAL.format(status)}{retry}\r\n".encode())

    def shut_down(self) -> None:
        """Close the sending side (RFC 9112 §9.6)."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.is_gone = True

    def drain(self) -> None:
        """Read and drop input after the last answer, so that the client gets the whole answer."""
        try:
            data = self._sock.recv(_MOST_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._drained += len(data)
        self.is_gone = self.is_gone or not data or self._drained > _MOST_DRAINED

    def is_ready(self, event: int, seconds: float) -> bool:
        waiting = select.poll()
        waiting.register(self._sock, event)
        return bool(waiting.poll(seconds * 1000))
