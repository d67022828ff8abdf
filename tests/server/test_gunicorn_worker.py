"""What the loop of gunicorn's worker does with connections that it has dropped."""

import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from gunicorn.config import Config
from gunicorn.workers.gthread import TConn

from sso.server.gunicorn_worker import ClientSocket, Worker


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
