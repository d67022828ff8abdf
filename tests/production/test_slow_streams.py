"""Bodies that arrive slowly through Caddy, over HTTP/2, keep no server busy."""

from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread

import pytest
import requests
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError

from tests.production.caddy import HOST, SPELLINGS, Caddy
from tests.support.processes import SERVERS, Server
from tests.support.slow_clients import unanswered

STREAMS = 240  # of a connection; Caddy allows 250
PATH = "/api/auth/oauth2/token"
MAX_BODY = 256 * 1024


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("streams")
    environ = {"SSO_TRUSTED_PROXIES": "1", "SSO_BASE_URL": "https://localhost/api/auth"}
    with Server(folder, kind=request.param, **environ).running() as running:
        yield running


@pytest.fixture(scope="module", params=SPELLINGS)
def caddy(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Caddy]:
    proxy = Caddy(tmp_path_factory.mktemp("caddy"), server.port, request.param)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


class Streams:
    """Connections full of requests whose bodies do not come, each opened again when it ends."""

    def __init__(self, caddy: Caddy, connections: int) -> None:
        self.caddy, self.connections, self.opened = caddy, connections, 0
        self._end = Event()

    def __enter__(self) -> "Streams":
        self._threads = [Thread(target=self._run) for _ in range(self.connections)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            with suppress(OSError, ProtocolError):
                self._keep_full()

    def _keep_full(self) -> None:
        with self.caddy.connect("h2") as connection:
            connection.settimeout(0.3)
            h2 = H2Connection(H2Configuration(client_side=True))
            h2.initiate_connection()
            while not self._end.is_set():
                while h2.open_outbound_streams < STREAMS:
                    self._begin(h2)
                connection.sendall(h2.data_to_send())
                try:
                    if not (data := connection.recv(65536)):
                        return
                except TimeoutError:
                    continue
                h2.receive_data(data)

    def _begin(self, h2: H2Connection) -> None:
        stream = h2.get_next_available_stream_id()
        names = ((":method", "POST"), (":authority", HOST), (":scheme", "https"), (":path", PATH))
        form = ("content-type", "application/x-www-form-urlencoded")
        h2.send_headers(stream, [*names, form, ("content-length", "100")])
        h2.send_data(stream, b"a")
        self.opened += 1


@pytest.mark.parametrize("connections", [4, 8])
def test_slow_bodies_over_http_2_stop_nobody(
    caddy: Caddy, server: Server, connections: int
) -> None:
    with Streams(caddy, connections) as streams:
        Event().wait(3)
        failed = unanswered(f"{server.origin}/healthz", 6)
        jwks, certificate = f"{caddy.origin}/api/auth/oauth2/jwks", str(caddy.certificate)
        through = requests.get(jwks, verify=certificate, timeout=10)
    assert streams.opened >= connections * STREAMS
    assert (failed, through.status_code) == (0, 200)


@pytest.mark.parametrize(
    ("size", "status"), [(20, 401), (MAX_BODY - 6, 401), (MAX_BODY, 413), (3 * MAX_BODY, 413)]
)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_bodies_up_to_the_bound_pass(
    caddy: Caddy, server: Server, size: int, status: int, is_chunked: bool
) -> None:
    if is_chunked and server.kind == "granian":
        pytest.skip("granian takes no chunks")
    body = b"a=" + size * b"x"
    response = requests.post(
        f"{caddy.origin}{PATH}",
        data=iter([body]) if is_chunked else body,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        verify=str(caddy.certificate),
        timeout=20,
    )
    assert (response.status_code // 100, response.status_code == 413) == (4, status == 413)
