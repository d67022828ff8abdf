"""What the loop of gunicorn's worker does with connections that it has dropped."""

import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from gunicorn.config import Config
from gunicorn.workers.gthread import TConn

from sso.process.concurrency import MAX_UPLOAD
from sso.server.arrival import Arrival
from sso.server.gunicorn_worker import MOST_LARGE_BYTES, ClientSocket, Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    """One that lets a single connection wait."""
    config = Config()
    config.set("threads", 1)
    config.set("worker_connections", 2)
    made = Worker(1, 1, [], None, 1, config, None)
    made.poller = selectors.DefaultSelector()
    yield made
    made.poller.close()
    made.tmp.close()


@pytest.mark.parametrize("in_threads", [0, 2 * MAX_UPLOAD])
def test_uploads_in_memory_are_bounded(worker: Worker, in_threads: int) -> None:
    """Few are as much as many small ones; those that threads have count, too."""
    worker.cfg.set("worker_connections", 100)
    worker._large_in_threads[object()] = in_threads
    with ExitStack() as stack:
        for number in range(10):
            ours, _ = map(stack.enter_context, socket.socketpair())
            conn = TConn(worker.cfg, ours, ("192.0.2.1", number), ("192.0.2.2", 1))
            conn.sock = ClientSocket(ours)
            conn.sock.arrival = Arrival(
                b"POST /account/picture HTTP/1.1\r\nContent-Length: 5242880\r\n\r\n"
            )
            conn.sock.arrival.add(5_000_000 * b"a")
            worker._wait(conn)
        held = sum(len(conn.sock.arrival.data) for conn in worker._waiting)
    assert MOST_LARGE_BYTES - 2 * MAX_UPLOAD < held + in_threads <= MOST_LARGE_BYTES


def test_who_is_dropped_is_closed_once(worker: Worker) -> None:
    """Counted twice, it would let in more connections than there is room for."""
    with ExitStack() as stack:

        def connect() -> tuple[TConn, socket.socket]:
            ours, theirs = map(stack.enter_context, socket.socketpair())
            conn = TConn(worker.cfg, ours, ("192.0.2.1", 1), ("192.0.2.2", 1))
            conn.sock = ClientSocket(ours)
            worker.nr_conns += 1
            return conn, theirs

        older, client = connect()
        worker._wait(older)
        client.send(b"G")
        round_of_the_loop = worker.poller.select(0)
        worker._wait(connect()[0])  # it comes first, and needs the room
        for key, _ in round_of_the_loop:
            key.data(key.fileobj)
        assert (worker.nr_conns, len(worker._waiting)) == (1, 1)
