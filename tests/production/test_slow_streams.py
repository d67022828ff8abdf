"""Bodies that arrive slowly through Caddy, over HTTP/2, keep no server busy."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest
import requests
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError

from tests.production.caddy import HOST, SPELLINGS, Caddy
from tests.production.nginx import Nginx
from tests.production.people import picture_form
from tests.support.processes import SERVERS, Server, free_port
from tests.support.slow_clients import unanswered

# With granian it differs by what is behind the proxy, which keeps slow bodies from both.
ONE_SERVER = pytest.mark.parametrize(
    "server",
    ["gunicorn", pytest.param("granian", marks=pytest.mark.exhaustive)],
    indirect=True,
    scope="module",
)
STREAMS = 240  # of a connection; Caddy allows 250
PATH = "/api/auth/oauth2/token"
MAX_BODY = 256 * 1024
MAX_UPLOAD = 5 * 1024 * 1024 + 64 * 1024


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("streams")
    with Server(folder, kind=request.param, SSO_TRUSTED_PROXIES="1").running() as running:
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


def slow_bodies(server: Server, base_url: str, **environ: str) -> dict[str, str]:
    """What `doctor` finds at this URL."""
    report = server.try_flask("doctor", "--json", SSO_BASE_URL=base_url, **environ).stdout
    findings = json.loads(report)["findings"]
    finding = next(finding for finding in findings if finding["name"] == "slow bodies")
    assert isinstance(finding, dict)
    return finding


@pytest.mark.parametrize("program", SPELLINGS)
def test_doctor_says_whether_the_proxy_waits(server: Server, tmp_path: Path, program: str) -> None:
    statuses = []
    for has_buffers in (True, False):
        folder = tmp_path / str(has_buffers)
        proxy = Caddy(folder, server.port, program, has_buffers=has_buffers)
        proxy.start()
        try:
            trusted = {"REQUESTS_CA_BUNDLE": str(proxy.certificate)}
            finding = slow_bodies(server, f"{proxy.origin}/api/auth", **trusted)
        finally:
            proxy.stop()
        statuses.append(finding["status"])
        assert ("docs/deploy/index.md" in (finding["hint"] or "")) is not has_buffers
    assert statuses == ["ok", "wrong" if server.kind == "granian" else "warning"]


@ONE_SERVER
def test_doctor_through_nginx(server: Server, tmp_path: Path) -> None:
    nginx = Nginx(tmp_path / "nginx", (server.port, server.port))
    nginx.start()
    try:
        trusted = {"REQUESTS_CA_BUNDLE": str(nginx.certificate)}
        assert slow_bodies(server, f"{nginx.origin}/api/auth", **trusted)["status"] == "ok"
    finally:
        nginx.stop()


def test_doctor_without_a_proxy_or_a_server(server: Server) -> None:
    alone = slow_bodies(server, server.base_url, SSO_TRUSTED_PROXIES="0")
    assert (alone["status"], alone["seen"]) == ("skipped", "no proxy, for this machine only")
    away = slow_bodies(server, f"http://127.0.0.1:{free_port()}/api/auth")
    assert (away["status"], away["seen"]) == (
        "skipped",
        "no answer to a slow body (ConnectionRefusedError)",
    )


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


@ONE_SERVER
@pytest.mark.parametrize("connections", [4, pytest.param(8, marks=pytest.mark.exhaustive)])
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


@pytest.mark.parametrize(("size", "status"), [(MAX_UPLOAD, 400), (MAX_UPLOAD + 1, 413)])
def test_pictures_up_to_their_bound_pass(
    caddy: Caddy, server: Server, size: int, status: int
) -> None:
    if server.kind == "granian" and status == 413:
        pytest.skip("granian answers before Caddy has sent it all, and Caddy may say 503")
    response = requests.post(
        f"{caddy.origin}/api/auth/account/picture",
        data=picture_form(size),
        headers={"Content-Type": "multipart/form-data; boundary=b"},
        verify=str(caddy.certificate),
        timeout=20,
    )
    assert response.status_code == status  # 400: read whole, and without a cookie
