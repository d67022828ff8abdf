"""Clients that send a byte now and then, or leave their connections open, stop no worker."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread

import pytest
import requests

from sso.process import concurrency
from sso.server import gunicorn_worker
from tests.support.processes import Server
from tests.support.servers import children
from tests.support.slow_clients import FORM, TOKEN, Attack, unanswered

MANY = 240  # more than a worker has threads
DEADLINE = 4

CONFIGURATION = f"""
from sso.server import gunicorn_worker
from sso.server.gunicorn_conf import *
gunicorn_worker.ARRIVAL = {DEADLINE}
gunicorn_worker.SENDING = {DEADLINE}
"""

SLOW = {
    "request line": (b"GET /api/auth/oauth2/jw", b"w"),
    "head": (b"GET /api/auth/oauth2/jwks HTTP/1.1\r\nHost: x\r\nX-A: ", b"a"),
    "body": (TOKEN + FORM + b"Content-Length: 5000\r\n\r\na=", b"x"),
    "chunks": (TOKEN + FORM + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "size of a chunk": (TOKEN + FORM + b"Transfer-Encoding: chunked\r\n\r\n0;", b"a"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("slow")
    (folder / "short.py").write_text(CONFIGURATION)
    short = ("-c", str(folder / "short.py"))
    with Server(folder, workers=1, SSO_TRUSTED_PROXIES="1").running(*short) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def _descriptors() -> None:
    """As many as the attacks take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 4096:
        most = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connect(server: Server, stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))


def read_all(one: socket.socket) -> bytes:
    """What there is up to the end of the connection."""
    found = b""
    try:
        while data := one.recv(4096):
            found += data
    except ConnectionResetError:
        pass
    return found


def test_who_sends_slowly_is_sent_away(server: Server) -> None:
    with ExitStack() as stack:
        kept = {kind: connect(server, stack) for kind in SLOW}
        for kind, one in kept.items():
            one.sendall(SLOW[kind][0])
        stop = Event()

        def go_on() -> None:
            while not stop.wait(1):
                for kind, one in kept.items():
                    with suppress(OSError):
                        one.send(SLOW[kind][1])

        dripping = Thread(target=go_on)
        dripping.start()
        try:
            found = {kind: read_all(one) for kind, one in kept.items()}
        finally:
            stop.set()
            dripping.join()
    for kind, answer in found.items():
        assert answer.startswith(b"HTTP/1.1 408 "), (kind, answer[:200])
        assert b"Connection: close" in answer, kind


@pytest.mark.parametrize("kind", SLOW)
def test_more_slow_ones_than_threads_stop_nobody(server: Server, kind: str) -> None:
    beginning, drip = SLOW[kind]
    with ExitStack() as stack:
        slow = [connect(server, stack) for _ in range(MANY)]
        began = time.monotonic()
        for one in slow:
            one.sendall(beginning)
        for one in slow:
            one.sendall(drip)
        answer = requests.get(f"{server.base_url}/oauth2/jwks", timeout=60)
        took = time.monotonic() - began
    assert answer.status_code == 200
    assert took < 3, f"{took:.0f} s"
    assert requests.get(f"{server.base_url}/oauth2/jwks", timeout=20).status_code == 200


def test_an_upload_in_pieces_that_is_in_time_is_read(server: Server) -> None:
    body = b"grant_type=nothing&x=" + b"y" * 3000
    with ExitStack() as stack:
        one = connect(server, stack)
        head = TOKEN + FORM + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        for start in range(0, len(body), 1000):
            one.sendall((head if not start else b"") + body[start : start + 1000])
            time.sleep(0.3)
        found = read_all(one)
    assert found.startswith(b"HTTP/1.1 4"), found[:200]
    assert not found.startswith(b"HTTP/1.1 408"), found[:200]


def test_a_kept_connection_has_the_time_anew_for_each_request(server: Server) -> None:
    with requests.Session() as session:
        for pause in (0, DEADLINE / 2 + 0.5, DEADLINE / 2 + 0.5):
            time.sleep(pause)
            assert session.get(f"{server.base_url}/oauth2/jwks", timeout=20).status_code == 200


def test_who_does_not_close_keeps_nobody_from_connecting(server: Server) -> None:
    """The loop that accepts connections must not wait for them to be closed."""
    with ExitStack() as stack:
        for _ in range(20):
            one = connect(server, stack)
            one.sendall(b"GET /api/auth/oauth2/jwks HTTP/1.0\r\n\r\n")
        assert one.recv(9) == b"HTTP/1.0 "  # answered
        began = time.monotonic()
        assert requests.get(f"{server.base_url}/oauth2/jwks", timeout=60).status_code == 200
        took = time.monotonic() - began
    assert took < 5, f"{took:.0f} s"


def test_an_answer_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gunicorn_worker, "SENDING", 0.3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        answering = gunicorn_worker.ClientSocket(ours)
        answering.start()
        answering.sendall(b"short")
        assert theirs.recv(10) == b"short"
        with pytest.raises(BrokenPipeError):
            answering.sendall(b"x" * 10_000_000)


def test_the_head_of_an_answer_is_sent_with_the_body() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # keeps writes apart
    with ours, theirs:
        answering = gunicorn_worker.ClientSocket(ours)
        for _ in range(2):
            answering.start()
            answering.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            answering.sendall(b"body")
            assert theirs.recv(100) == b"HTTP/1.1 200 OK\r\n\r\nbody"
        answering.start()
        answering.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        assert answering.send_now()
        assert theirs.recv(100) == b"HTTP/1.1 204 No Content\r\n\r\n"


def test_a_client_that_is_gone_is_noticed_without_a_body() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        answering = gunicorn_worker.ClientSocket(ours)
        answering.start()
        answering.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        theirs.close()
        assert not answering.send_now()


def test_who_waits_for_leave_to_send_a_body_gets_it(server: Server) -> None:
    body = b"grant_type=nothing"
    with ExitStack() as stack:
        one = connect(server, stack)
        head = TOKEN + FORM + b"Connection: close\r\nExpect: 100-continue\r\n"
        one.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
        assert one.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(body)
        assert read_all(one).startswith(b"HTTP/1.1 4")


def test_requests_that_are_sent_at_once_are_all_answered(server: Server) -> None:
    get = b"GET /api/auth/oauth2/jwks HTTP/1.1\r\nHost: x\r\n"
    with ExitStack() as stack:
        one = connect(server, stack)
        one.sendall(3 * (get + b"\r\n") + get + b"Connection: close\r\n\r\n")
        assert read_all(one).count(b"HTTP/1.1 200 OK") == 4


def test_an_answer_that_is_taken_later_needs_no_thread() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        answering = gunicorn_worker.ClientSocket(ours)
        answering.start()
        began = time.monotonic()
        answering.sendall(b"x" * 900_000)
        assert time.monotonic() - began < 1
        assert answering.unsent
        assert not answering.send_now()
        taken = 0
        while answering.unsent:
            taken += len(theirs.recv(65536))
            answering.send_now()
        theirs.settimeout(0.1)
        while taken < 900_000:
            taken += len(theirs.recv(65536))
        assert not answering.is_gone


# Rare are those that differ from a silent body by what is sent, not by what is waited for.
KINDS = [
    "silent body", "head", "nothing", "kept",
    pytest.param("large body", marks=pytest.mark.exhaustive),  # see the next test
    pytest.param("body", marks=pytest.mark.exhaustive),
    pytest.param("chunks", marks=pytest.mark.exhaustive),
]  # fmt: skip


@pytest.mark.parametrize("count", [pytest.param(500, marks=pytest.mark.exhaustive), 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_many_slow_clients_stop_nobody(server: Server, kind: str, count: int) -> None:
    """Each connection is opened again when it ends: 250 a second here, and 1000 are the most."""
    with Attack(server.port, count, kind).running() as attack:
        time.sleep(DEADLINE + 1)
        failed = unanswered(f"{server.origin}/healthz", 4)
    assert failed <= 1  # on a busy machine; all of them where slow clients hold the threads
    assert attack.opened > count or kind in ("nothing", "kept")


def test_what_is_kept_in_memory_is_bounded(server: Server) -> None:
    def memory() -> int:
        """Of the worker alone, in kB."""
        (worker,) = children(server.pid)
        lines = Path(f"/proc/{worker}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    before, most, failed = memory(), 0, 0
    # Few of them are opened again: reading megabytes would keep the machine busy, no thread.
    with Attack(server.port, 1000, "large body", rate=50).running() as attack:
        for _ in range(DEADLINE + 1):
            time.sleep(1)
            most = max(most, memory())
        for _ in range(4):
            failed += unanswered(f"{server.origin}/healthz", 1, within=8)
            most = max(most, memory())
    assert most - before < 64 * 1024
    assert failed <= 1  # as above
    assert attack.opened > 1000


@pytest.mark.parametrize(
    ("forwarded", "kind"),
    [
        (False, "silent body"),
        (True, "large body"),
        pytest.param(False, "large body", marks=pytest.mark.exhaustive),
        pytest.param(True, "silent body", marks=pytest.mark.exhaustive),
    ],
)
def test_a_client_of_another_network_is_not_dropped(
    server: Server, forwarded: bool, kind: str
) -> None:
    """By the address of the connection, or by the one that the trusted proxy tells."""
    source = "127.0.0.1" if forwarded else "127.0.0.3"
    head = b"X-Forwarded-For: %b\r\n"
    body = b"grant_type=nothing&x=" + 100_000 * b"y"
    attack = Attack(server.port, 1500, kind, source="127.0.0.1" if forwarded else "127.0.0.2")
    if forwarded:
        attack.add(head % b"198.51.100.9")
    with attack.running(), socket.socket() as slow:
        time.sleep(2)
        slow.settimeout(20)
        slow.bind((source, 0))
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(TOKEN + FORM + (head % b"192.0.2.7" if forwarded else b""))
        slow.sendall(b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 20_000):
            slow.sendall(body[start : start + 20_000])
            time.sleep(0.4)
        answer = read_all(slow)
    assert answer.split()[1] in (b"400", b"401"), answer[:200]


def test_the_connections_that_make_room_are_told(server: Server) -> None:
    with ExitStack() as stack:
        first = connect(server, stack)
        first.sendall(TOKEN + FORM + b"Content-Length: 100\r\n\r\na")
        time.sleep(0.5)
        for _ in range(1000):
            connect(server, stack).sendall(b"G")
        assert read_all(first).startswith((b"HTTP/1.1 503 ", b"HTTP/1.1 408 "))


def test_a_body_that_is_refused_does_not_become_a_request(server: Server) -> None:
    """What follows the head of a refused request is no request, although it looks like one."""
    inner = b"GET /api/auth/oauth2/jwks HTTP/1.1\r\nHost: x\r\n\r\n"
    for head in (b"Content-Length: 300000\r\n", b"Content-Length: 99\r\nX-SSO-Head-Only: x\r\n"):
        with ExitStack() as stack:
            one = connect(server, stack)
            one.sendall(TOKEN + FORM + head + b"\r\n" + inner)
            assert read_all(one).count(b"HTTP/1.1 ") == 1


def test_the_answer_to_a_picture_that_is_too_long_is_read(server: Server) -> None:
    """A proxy, and a browser, sends all of it before it looks for an answer."""
    size = concurrency.MAX_UPLOAD + 1
    head = b"POST /api/auth/account/picture HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    pieces = 16
    with ExitStack() as stack:
        client = connect(server, stack)
        client.sendall(head % size)
        for _ in range(pieces):
            time.sleep(2 * gunicorn_worker.LINGER / pieces)
            client.sendall(b"x" * (size // pieces))
        assert read_all(client).startswith(b"HTTP/1.1 413 ")


def test_a_refused_body_is_not_read_for_ever(server: Server) -> None:
    with ExitStack() as stack:
        client = connect(server, stack)
        client.sendall(TOKEN + FORM + b"Content-Length: 300000\r\n\r\n")
        sent = 0
        with suppress(ConnectionError):
            while sent < 5 * (DEADLINE + 10):
                client.sendall(b"x")
                sent += 1
                time.sleep(0.2)
        assert 5 * gunicorn_worker.LINGER < sent < 5 * (DEADLINE + 10)


def test_the_threads_are_as_many_as_the_test_takes() -> None:
    assert MANY > concurrency.MAX_CONCURRENT + concurrency.MAX_DELAYED
