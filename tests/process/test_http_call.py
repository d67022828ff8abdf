"""Requests to registered URLs: which addresses are refused, and peers that take their time."""

import gc
import itertools
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from sso.config.upstream.oidc import GitHubProvider
from sso.process import addresses, http_call
from sso.process.resolver import Resolver
from sso.upstream import http as upstream_http
from sso.upstream.github import GitHubClient
from sso.upstream.identity import UpstreamUnavailable
from tests.support import listeners

LINK_LOCAL = ["169.254.169.254", "fe80::1%eth0", "::ffff:169.254.1.1", "0.0.0.0", "::", "224.0.0.1"]
METADATA = [
    "192.0.0.192", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd00:ec2::23",
    "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1", "fd00:100::100:200",
]  # fmt: skip
# Each stands for 169.254.169.254 or 192.0.0.192.
EMBEDDED = [
    "::ffff:192.0.0.192", "::ffff:c000:c0", "::169.254.169.254", "::ffff:0:169.254.169.254",
    "64:ff9b::169.254.169.254", "64:ff9b:1::169.254.169.254", "64:ff9b:1:a9fe:a9:fe00::",
    "64:ff9b:1:00a9:00fe:a9fe::", "64:ff9b:1:0:a9:fea9:fe00::", "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1", "2001:0:102:304:0:0:5601:5601", "fd12::5efe:169.254.169.254",
    "2a00:1:2:3:200:5efe:192.0.0.192",
]  # fmt: skip
NEVER = [*LINK_LOCAL, *METADATA, *EMBEDDED, "255.255.255.255", "0.1.2.3", "ff02::1"]
PRIVATE = [
    "10.0.0.7", "172.16.0.1", "192.168.1.1", "127.0.0.1", "127.255.0.1", "::1", "fd00::1",
    "100.64.0.1", "::ffff:10.0.0.7", "2002:0a00:0007::1", "64:ff9b::10.0.0.7", "198.18.0.1",
    "192.0.2.1", "64:ff9b:1::10.0.0.7", "::10.0.0.7", "::ffff:0:10.0.0.7", "fec0::1", "5f00::1",
    "192.0.0.1", "192.88.99.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "2001:db8::1",
    "2001:2::1", "2001:10::1", "2001:0:102:304::1", "2002:5db8:d822::1", "3fff::1", "100::1",
    "2a00:1:2:3:0:5efe:10.0.0.7", "2a00:1:2:3:200:5efe:127.0.0.1", "fc00::1", "4000::1",
]  # fmt: skip
PUBLIC = [
    "93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::93.184.216.34",
    "192.0.1.1", "100.128.0.1", "168.63.129.17", "172.32.0.1", "2a00:1:2:3:0:5efe:93.184.216.34",
]  # fmt: skip


class Network:
    """Stands for the resolver and for sockets."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.called: list[str] = []
        self.asked = 0

    def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in self.addresses]

    def socket(self, *_: Any) -> "Network":
        return self

    def connect(self, address: tuple[str, int]) -> None:
        self.called.append(address[0])
        raise ConnectionRefusedError

    def settimeout(self, _: float) -> None: ...
    def close(self) -> None: ...


def call(monkeypatch: pytest.MonkeyPatch, network: Network, only_public: bool) -> OSError:
    monkeypatch.setattr(socket, "getaddrinfo", network.getaddrinfo)
    monkeypatch.setattr(socket, "socket", network.socket)
    with pytest.raises(OSError) as caught:  # noqa: PT011 (any is meant)
        http_call.call("GET", "http://keys.example/", only_public=only_public)
    return caught.value


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("only_public", [True, False])
def test_addresses_that_are_never_called(
    monkeypatch: pytest.MonkeyPatch, address: str, only_public: bool
) -> None:
    network = Network(address)
    assert isinstance(call(monkeypatch, network, only_public), http_call.ForbiddenPeer)
    assert network.called == []


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    network = Network(address)
    assert isinstance(call(monkeypatch, network, only_public=True), http_call.ForbiddenPeer)
    assert network.called == []
    assert isinstance(call(monkeypatch, network, only_public=False), ConnectionRefusedError)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    network = Network(address)
    assert isinstance(call(monkeypatch, network, only_public=True), ConnectionRefusedError)
    assert network.called == [address]


def test_a_name_is_resolved_once_and_a_private_address_beside_is_not_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that is rebound has another address at the second look."""
    network = Network("10.0.0.7", *PUBLIC, *PUBLIC)
    call(monkeypatch, network, only_public=True)
    assert network.called == PUBLIC[:3]
    assert network.asked == 1


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "169.254.43518",
        "0xa9.254.0xa9fe", "[::ffff:a9fe:a9fe]", "[fe80::1%25eth0]", "fe80::1%eth0",
        "169.254.169.254.",
    ],
)  # fmt: skip
def test_literals_in_other_spellings(host: str) -> None:
    address = addresses.literal(host)
    assert address is not None
    assert addresses.forbidden(address, only_public=False) == "link-local"


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "0177.0.0.1", "2130706433", "[::1]", "10.1"])
def test_private_literals_in_other_spellings(host: str) -> None:
    address = addresses.literal(host)
    assert address is not None
    assert addresses.forbidden(address, only_public=True) == "private"
    assert addresses.forbidden(address, only_public=False) is None


@pytest.mark.parametrize(
    "host", ["", "localhost", "1.example", "0x", "1.2.3.4.5", "face", "4294967296"]
)
def test_names_are_no_literals(host: str) -> None:
    assert addresses.literal(host) is None


# Peers that take their time. Each handler gets a connected socket, in a thread of its own.
Handler = Callable[[socket.socket], None]
LIMIT = 0.6  # seconds; what is more than this below is for a slow machine
PATIENCE = 1.5


@contextmanager
def peer(handler: Handler) -> Iterator[int]:
    """The port of a server on this machine."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.settimeout(0.05)
        is_over = threading.Event()

        def answer(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                handler(connection)

        def serve() -> None:
            while not is_over.is_set():
                with suppress(TimeoutError):
                    connection, _ = server.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            is_over.set()
            thread.join()


def sends(*parts: bytes, then: bytes = b"", pause: float = 0.05) -> Handler:
    """Read the request and send `parts`, then `then` again and again, for ten seconds."""

    def handler(connection: socket.socket) -> None:
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)
        ends = monotonic() + 10
        while monotonic() < ends:
            if then:
                connection.sendall(then)
            sleep(pause)

    return handler


CLOSE = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SLOW: dict[str, Handler] = {
    "nothing": sends(),
    "HTTP/1.0": sends(b"HTTP/1.0 200 OK\r\n\r\n", then=b" "),
    "Connection: close": sends(CLOSE, then=b" "),
    "Connection: close, then nothing": sends(CLOSE),
    "a length": sends(LENGTH, then=b" "),
    "chunks": sends(CHUNKED, then=b"1\r\n \r\n"),
    "a chunk": sends(CHUNKED, b"ff\r\n", then=b" "),
    "the length of a chunk": sends(CHUNKED, then=b"0"),
    "trailers": sends(CHUNKED, b"0\r\n", then=b"a: b\r\n"),
    "the status": sends(b"HTTP/1.1 200 ", then=b"O"),
    "headers": sends(b"HTTP/1.1 200 OK\r\n", then=b"a: b\r\n"),
    "a header": sends(b"HTTP/1.1 200 OK\r\na: ", then=b"b"),
    "100 Continue": sends(then=b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.mark.slow  # it waits
@pytest.mark.parametrize("handler", SLOW.values(), ids=SLOW)
def test_a_peer_that_trickles(handler: Handler) -> None:
    """The deadline is for the whole call, however the end of the answer is marked."""
    with peer(handler) as port:
        begun = monotonic()
        with pytest.raises(TimeoutError, match=r"it took longer than 0\.6 s"):
            http_call.call("GET", f"http://127.0.0.1:{port}/", seconds=LIMIT, read=900)
        assert monotonic() - begun < PATIENCE


@pytest.mark.slow
def test_a_peer_that_does_not_read() -> None:
    with peer(lambda connection: sleep(3)) as port:
        begun = monotonic()
        with pytest.raises(TimeoutError):
            http_call.call("POST", f"http://127.0.0.1:{port}/", b"x" * 20_000_000, seconds=LIMIT)
        assert monotonic() - begun < PATIENCE


@pytest.mark.slow
@pytest.mark.parametrize("start", [b"", b"\x16\x03\x03\x20\x00\x02\x00\x1f\xfc"])
def test_a_tls_handshake_that_stalls(start: bytes) -> None:
    """Also one whose first message goes on and on."""
    with peer(sends(start, then=b"\0" if start else b"")) as port:
        begun = monotonic()
        with pytest.raises(TimeoutError, match="it took longer than"):
            http_call.call("GET", f"https://127.0.0.1:{port}/", seconds=LIMIT)
        assert monotonic() - begun < PATIENCE


@pytest.mark.slow
def test_a_peer_that_trickles_over_tls(tmp_path: Path) -> None:
    certificate = listeners.certificate(tmp_path, 10)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.load_cert_chain(certificate)
    client.load_verify_locations(certificate)

    def handler(connection: socket.socket) -> None:
        with server.wrap_socket(connection, server_side=True) as secured:
            sends(CLOSE + b"body", then=b" ")(secured)

    with peer(handler) as port:
        url, begun = f"https://127.0.0.1:{port}/", monotonic()
        answer = http_call.call("GET", url, tls=client, read=4)
        assert answer.body == b"body"
        assert answer.certificate["notAfter"]
        with pytest.raises(TimeoutError, match="it took longer than"):
            http_call.call("GET", url, tls=client, seconds=LIMIT, read=900)
        assert monotonic() - begun < PATIENCE


@pytest.mark.slow
def test_a_tls_handshake_has_the_time_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy peer accepts connections at once, and answers later than one may connect."""
    certificate = listeners.certificate(tmp_path, 10)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.load_cert_chain(certificate)
    client.load_verify_locations(certificate)

    def handler(connection: socket.socket) -> None:
        sleep(0.5)
        with server.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1000)
            secured.sendall(CLOSE)

    monkeypatch.setattr(http_call, "CONNECT_SECONDS", 0.25)
    with peer(handler) as port:
        assert http_call.call("GET", f"https://127.0.0.1:{port}/", tls=client).status == 200


@pytest.mark.slow
def test_addresses_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four addresses have no more time together than the call has."""
    network = Network(*PUBLIC[:1] * 4)
    limits: list[float] = []

    def connect(_: Any) -> None:
        sleep(limits[-1])
        raise TimeoutError("timed out")

    monkeypatch.setattr(network, "connect", connect)
    monkeypatch.setattr(network, "settimeout", limits.append)
    monkeypatch.setattr(socket, "getaddrinfo", network.getaddrinfo)
    monkeypatch.setattr(socket, "socket", network.socket)
    monkeypatch.setattr(http_call, "CONNECT_SECONDS", 0.25)
    begun = monotonic()
    with pytest.raises(TimeoutError):
        http_call.call("GET", "http://keys.example/", seconds=LIMIT)
    assert monotonic() - begun < PATIENCE
    assert len(limits) == 3


def test_answers_of_each_kind() -> None:
    """What does not trickle is read, up to the limit; a redirect is not followed."""
    length = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"
    for sent, status, body in (
        (b"HTTP/1.0 200 OK\r\n\r\nbody", 200, b"body"),
        (CLOSE + b"body", 200, b"body"),
        (length, 200, b"body"),
        (CHUNKED + b"2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n", 200, b"body"),
        (CLOSE + b"b" * 2000, 200, b"b" * 1000),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            302,
            b"",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + length, 200, b"body"),
    ):

        def handler(connection: socket.socket, sent: bytes = sent) -> None:
            connection.recv(65536)
            connection.sendall(sent)

        with peer(handler) as port:
            answer = http_call.call("GET", f"http://127.0.0.1:{port}/", read=1000)
            assert (answer.status, answer.body) == (status, body)


@pytest.mark.parametrize(
    "handler",
    [
        sends(CHUNKED, b"-1\r\n", then=b"x" * 100_000, pause=0),  # "all there is" to http.client
        sends(then=b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, pause=0),
        sends(CHUNKED, then=b"1;" + b"x" * 60_000 + b"\r\n \r\n", pause=0),
        sends(b"HTTP/1.1 200 OK\r\n", *[b"a: " + b"x" * 60_000 + b"\r\n"] * 99, then=b"a: b\r\n"),
    ],
)
def test_a_peer_that_sends_without_end(handler: Handler) -> None:
    begun = monotonic()
    with peer(handler) as port, pytest.raises((HTTPException, ValueError)):
        http_call.call("GET", f"http://127.0.0.1:{port}/", seconds=8, read=65_536)
    assert monotonic() - begun < 6


class SlowNames:
    """A resolver that hangs until it is released."""

    def __init__(self) -> None:
        self.release, self.asked = threading.Event(), itertools.count()

    def getaddrinfo(self, *_: Any, **__: Any) -> list[Any]:
        next(self.asked)
        self.release.wait(10)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")


@pytest.fixture
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowNames]:
    slow = SlowNames()
    monkeypatch.setattr(socket, "getaddrinfo", slow.getaddrinfo)
    yield slow
    slow.release.set()


def test_a_name_that_is_not_found_in_time(slow_names: SlowNames) -> None:
    begun = monotonic()
    with pytest.raises(TimeoutError, match="could not be looked up"):
        http_call.call("GET", "http://slow.example/", seconds=0.1)
    assert monotonic() - begun < PATIENCE


def test_slow_names_leave_room_for_others(slow_names: SlowNames) -> None:
    """Those that wait for one name share a thread, and each kind of call has its own threads."""
    resolver = Resolver(2)
    for name in ("a.example", "a.example", "b.example", "a.example"):
        with pytest.raises(TimeoutError, match=r"could not be looked up in 0\.01 s"):
            resolver.addresses(name, 443, 0.01)
    with pytest.raises(TimeoutError, match="too many names"):
        resolver.addresses("c.example", 443, 0.01)
    with pytest.raises(TimeoutError, match="could not be looked up"):
        Resolver(2).addresses("c.example", 443, 0.01)
    assert next(slow_names.asked) == 3
    slow_names.release.set()
    ends = monotonic() + 5
    while monotonic() < ends:  # there is room again
        try:
            resolver.addresses("c.example", 443, 1)
        except socket.gaierror:
            break
        except TimeoutError:
            sleep(0.01)
    with pytest.raises(socket.gaierror):
        resolver.addresses("c.example", 443, 1)


@pytest.mark.slow
def test_a_provider_that_trickles_frees_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three requests of one sign-in, each of them in time, have a limit together."""
    monkeypatch.setattr(upstream_http, "SECONDS", 0.8)
    monkeypatch.setattr(upstream_http, "SECONDS_TOGETHER", 1.2)
    token = b'{"access_token": "t", "token_type": "bearer"}'

    def handler(connection: socket.socket) -> None:
        connection.recv(65536)
        sleep(0.6)
        connection.sendall(CLOSE + token)

    with peer(handler) as port:
        client = GitHubClient(GitHubProvider(
            id="corp", type="github", client_id="c", client_secret="s",
            url=f"http://127.0.0.1:{port}", allow_private_addresses=True,
        ))  # fmt: skip
        monkeypatch.setattr(client.caller, "_free", threading.BoundedSemaphore(8))
        ended: list[float] = []

        def ask() -> None:
            begun = monotonic()
            with pytest.raises(UpstreamUnavailable):
                client.complete("https://sso.example/cb", "code", "verifier" * 8)
            ended.append(monotonic() - begun)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert len(ended) == 8
        assert max(ended) < 2.5
        assert client.caller._free._value == 8  # all eight places


def test_no_socket_is_left_open_if_the_peer_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()  # with a reset
    select.select([client], [], [], 5)
    monkeypatch.setattr(http_call, "_connected", lambda *_: client)
    with pytest.raises(OSError, match=r"connected|reset"):
        http_call.call("GET", "https://127.0.0.1/")
    assert client.fileno() == -1
    gc.collect()
    secured = [each for each in gc.get_objects() if type(each) is ssl.SSLSocket]
    assert [each for each in secured if each.fileno() != -1] == []
