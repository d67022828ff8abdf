"""Who takes the next request over a kept connection: the thread of the one before, or the loop."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sso.process import concurrency
from tests.support.processes import Server

GET = b"GET /api/auth/oauth2/jwks HTTP/1.1\r\nHost: x\r\n\r\n"
REQUESTS = 10

CONFIGURATION = """
from sso.server import gunicorn_worker
from sso.server.gunicorn_conf import *

gunicorn_worker.MOMENT = {moment}
worker_class = "counting.Counting"
"""
COUNTING = """
from pathlib import Path

from sso.server.gunicorn_worker import Worker


class Counting(Worker):
    def enqueue_req(self, conn):
        with Path("enqueued").open("a") as file:
            file.write("x")
        super().enqueue_req(conn)
"""

Running = tuple[Server, Callable[[], int]]


@contextmanager
def serving(folder: Path, moment: float) -> Iterator[Running]:
    """A server with one worker, and how many requests its loop has given to threads."""
    (folder / "counting.py").write_text(COUNTING)
    (folder / "conf.py").write_text(CONFIGURATION.format(moment=moment))
    enqueued = folder / "enqueued"
    arguments = ("-c", str(folder / "conf.py"), "--chdir", str(folder))
    with Server(folder, workers=1).running(*arguments) as running:
        yield running, lambda: len(enqueued.read_text())


def connect(server: Server, stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))


def ask(connection: socket.socket) -> None:
    connection.sendall(GET)
    found = b""
    while b"\r\n\r\n" not in found or not found.endswith(b"}"):
        found += connection.recv(4096)
    assert found.startswith(b"HTTP/1.1 200 "), found


def test_a_connection_in_use_stays_with_its_thread(tmp_path: Path) -> None:
    with serving(tmp_path, moment=20) as (server, enqueued), ExitStack() as stack:
        before = enqueued()
        used = connect(server, stack)
        for _ in range(REQUESTS):
            ask(used)
        assert enqueued() - before == 1

        # About as many threads wait as requests can run at once; the others go back to the loop.
        others = [connect(server, stack) for _ in range(3 * concurrency.MAX_CONCURRENT)]
        for one in others:
            ask(one)
        before = enqueued()
        for one in others:
            ask(one)
        assert concurrency.MAX_CONCURRENT < enqueued() - before < len(others)


def test_a_connection_that_pauses_goes_back_to_the_loop(tmp_path: Path) -> None:
    with serving(tmp_path, moment=0.01) as (server, enqueued), ExitStack() as stack:
        before = enqueued()
        one = connect(server, stack)
        for _ in range(3):
            ask(one)
            time.sleep(0.5)
        assert enqueued() - before == 3
