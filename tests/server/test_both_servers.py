"""gunicorn and granian do the same, as far as a client or an operator sees."""

import json
import os
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import requests

from sso.process.concurrency import MAX_BODY, MAX_UPLOAD
from tests.support.processes import SERVERS, Server, free_port, wait_for
from tests.support.proofs import DPoP
from tests.support.servers import children
from tests.support.signing import ASSERTION_TYPE, EC, public, sign

pytestmark = pytest.mark.slow

TOKEN = "/api/auth/oauth2/token"
SLOW = 100
STOP = 1 << signal.SIGTERM - 1  # in a mask of signals


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    environ: dict[str, Any] = {
        "SSO_LOG_FORMAT": "json",
        "SSO_METRICS_PORT": str(free_port()),
        "SSO_TRUSTED_PROXIES": "1",
    }
    folder = tmp_path_factory.mktemp(request.param)
    with Server(folder, kind=request.param, **environ).running() as running:
        wait_for(lambda: metric(running, "sso_http_requests_total") > 0, "the metrics")
        yield running


def exchange(server: Server, *parts: bytes, breaks_off: bool = False) -> bytes:
    """What is answered to these bytes, up to the end of the connection."""
    found = b""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection,
        suppress(ConnectionError),
    ):
        for part in parts:
            connection.sendall(part)
        if breaks_off:
            connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(4096):
            found += data
    return found


def post(*headers: str) -> bytes:
    lines = [f"POST {TOKEN} HTTP/1.1", "Host: x", "Connection: close", *headers]
    form = "Content-Type: application/x-www-form-urlencoded"
    return "\r\n".join([*lines, form, "", ""]).encode()


def metric(server: Server, name: str) -> float:
    """The sum of its samples."""
    url = f"http://127.0.0.1:{server.environ['SSO_METRICS_PORT']}/metrics"
    try:
        text = requests.get(url, timeout=10).text
    except requests.ConnectionError:
        return 0
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.split()[-1]) for line in lines)


def test_sign_in_exchange_refresh_and_userinfo(server: Server) -> None:
    """`doctor` does all of it; nobody is in front who would remove what it forges."""
    done = server.try_flask("doctor", "--json")
    found = json.loads(done.stdout)
    wrong = [one["name"] for one in found["findings"] if one["status"] == "wrong"]
    slow = ["slow bodies"] if server.kind == "granian" else []  # no proxy waits for them
    assert wrong == [*slow, "proxy headers"], done.stdout


def test_one_connection_takes_several_requests(server: Server) -> None:
    get = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    found = exchange(server, 2 * (get + b"\r\n"), get + b"Connection: close\r\n\r\n")
    assert found.count(b"HTTP/1.1 200 OK") == 3
    assert found.lower().count(b"connection: close") == 1


def test_errors_are_ours(server: Server) -> None:
    page = requests.get(f"{server.base_url}/nothing", headers={"Accept": "text/html"}, timeout=20)
    assert (page.status_code, page.headers["X-Frame-Options"]) == (404, "DENY")
    assert page.headers["X-Request-ID"] in page.text
    refused = requests.get(f"{server.base_url}/oauth2/userinfo", timeout=20)
    assert (refused.status_code, refused.json()["error"]) == (401, "invalid_token")
    assert "Bearer" in refused.headers["WWW-Authenticate"]
    large = requests.post(f"{server.origin}{TOKEN}", data={"a": "x" * 300_000}, timeout=20)
    assert large.status_code == 413


def test_a_request_line_that_is_too_long(server: Server) -> None:
    found = exchange(server, b"GET /" + 100_000 * b"x" + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert found.split()[1] in (b"400", b"414", b"431"), found[:200]


def test_a_body_that_breaks_off_is_refused(server: Server) -> None:
    """granian gives no answer to a client that is gone by half; what it did is in the log."""
    exchange(server, post("Content-Length: 99", "X-Request-ID: broken-off"), b"grant_type=nothing",
             breaks_off=True)  # fmt: skip
    line = access_line(server, "broken-off")
    assert (line["status"], line["error"]) == (400, "invalid_request")  # and not what it asks for


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        ("account/picture", MAX_UPLOAD, 400),
        ("account/picture", MAX_UPLOAD + 1, 413),
        ("account", MAX_BODY + 1, 413),
    ],
)
def test_uploads(server: Server, path: str, size: int, status: int) -> None:
    head = b'--x\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\n'
    end = b"\r\n--x--\r\n"
    with suppress(requests.ConnectionError):  # granian closes before all of it was sent
        answer = requests.post(
            f"{server.base_url}/{path}",
            data=(head + b"&" * (size - len(head) - len(end)) + end),
            headers={"Content-Type": "multipart/form-data; boundary=x"},
            allow_redirects=False,
            timeout=20,
        )
        assert answer.status_code == status
        if status == 400:  # read whole: the form comes without a cookie
            assert "cookie" in answer.text
        return
    assert (status, server.kind) == (413, "granian")


def test_chunks(server: Server) -> None:
    """granian does not tell whether they are complete."""
    found = exchange(server, post("Transfer-Encoding: chunked"), b"3\r\na=b\r\n0\r\n\r\n")
    assert found.split()[1] == (b"411" if server.kind == "granian" else b"400")


def test_who_sends_slowly_keeps_nobody_waiting(server: Server) -> None:
    with ExitStack() as opened:
        for _ in range(SLOW):
            one = opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            one.sendall(post("Content-Length: 100") + b"a")
        began = time.monotonic()
        assert requests.get(f"{server.base_url}/oauth2/jwks", timeout=20).ok
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("forwarded", ["", "203.0.113.9"])
def test_whose_address_it_is(server: Server, forwarded: str) -> None:
    request_id = f"address-{forwarded or 'none'}"
    headers = {"X-Request-ID": request_id}
    if forwarded:
        headers["X-Forwarded-For"] = f"198.51.100.1, {forwarded}"
    requests.get(f"{server.base_url}/nothing", headers=headers, timeout=20)
    assert access_line(server, request_id)["address"] == (forwarded or "127.0.0.1")


def lines(server: Server) -> list[dict[str, Any]]:
    """The log, each line of which is JSON."""
    return [json.loads(line) for line in server.log.splitlines()]


def access_line(server: Server, request_id: str) -> dict[str, Any]:
    def find() -> list[dict[str, Any]]:
        found = [one for one in lines(server) if one.get("request_id") == request_id]
        return [one for one in found if one["logger"] == "sso.access"]

    wait_for(lambda: bool(find()), "its line")
    return find()[0]


def test_all_workers_count_together(server: Server) -> None:
    counted = 'sso_http_requests_total{endpoint="sso.jwks",method="GET",status="200"}'
    before = metric(server, counted)
    with ThreadPoolExecutor(4) as pool:
        urls = [f"{server.base_url}/oauth2/jwks"] * 40
        assert {one.status_code for one in pool.map(requests.get, urls)} == {200}
    assert metric(server, counted) == before + 40


def test_what_works_once_does_so_in_all_workers(server: Server, tmp_path: Path) -> None:
    """Here on SQLite; tests/production has two nodes on PostgreSQL."""
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public(EC)]}))
    callback, url = "https://bank.example/cb", server.base_url
    own = ("--profile", "fapi2", "--jwks", str(tmp_path / "jwks.json"))
    client_id = server.register("Bank", callback, *own)["client_id"]

    def assertion(number: int) -> dict[str, str]:
        claims = {"iss": client_id, "sub": client_id, "aud": url, "exp": int(time.time()) + 60}
        signed = sign({**claims, "jti": str(number)})
        return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": signed}

    same = {"token": "t", **assertion(-1)}

    def ask(_: int) -> int:
        return requests.post(f"{url}/oauth2/introspect", same, timeout=20).status_code

    proof = DPoP().header(htu=f"{url}/oauth2/par")
    request = {
        "response_type": "code", "redirect_uri": callback, "scope": "openid",
        "code_challenge": "c" * 43, "code_challenge_method": "S256",
    }  # fmt: skip

    def push(number: int) -> int:
        form = {**request, **assertion(number)}
        return requests.post(f"{url}/oauth2/par", form, headers=proof, timeout=20).status_code

    with ThreadPoolExecutor(8) as pool:
        assert Counter(pool.map(ask, range(8))) == {200: 1, 401: 7}
        assert Counter(pool.map(push, range(8))) == {201: 1, 400: 7}


def test_a_worker_that_is_killed_is_replaced(server: Server) -> None:
    (folder,) = Path(tempfile.gettempdir()).glob(f"sso-metrics-{server.pid}-*")
    open_ones = {int(one.stem.rpartition("_")[2]): one for one in folder.glob("gauge_live*.db")}
    killed = next(pid for pid in children(server.pid) if pid in open_ones)
    counted = metric(server, "sso_http_requests_total")
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: len(set(children(server.pid)) - {killed}) == 2, "a new worker")
    wait_for(lambda: metric(server, "sso_http_requests_total") > 0, "the metrics")
    assert metric(server, "sso_http_requests_total") >= counted > 0
    assert not open_ones[killed].exists()  # its connections are no longer counted


def test_a_reload_replaces_the_workers(server: Server) -> None:
    """gunicorn loses no request. granian closes connections that have sent nothing yet."""
    before, enough = set(children(server.pid)), Event()

    def ask() -> Counter[int]:
        seen: Counter[int] = Counter()
        while not enough.is_set():
            try:
                seen[requests.get(f"{server.base_url}/sign-in", timeout=20).status_code] += 1
            except requests.ConnectionError:
                seen[0] += 1
            time.sleep(0.02)
        return seen

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        try:
            os.kill(server.pid, signal.SIGHUP)
            wait_for(lambda: replaced(server, before), "new workers")
        finally:
            enough.set()
    seen = sum((one.result() for one in asking), Counter[int]())
    assert set(seen) - {0} == {200}
    assert seen[0] <= (2 * server.workers if server.kind == "granian" else 0)


def replaced(server: Server, before: set[int]) -> bool:
    now = set(children(server.pid))
    return len(now) == server.workers and not now & before


def test_one_thread_of_granian_gets_the_signals(server: Server) -> None:
    """The kernel chooses any that does not block them; the main one would sleep on."""
    if server.kind == "granian":
        for pid in (server.pid, *children(server.pid)):
            wait_for(partial(another_listens, pid), "its thread")


def another_listens(pid: int) -> bool:
    """Only one of its threads does not block SIGTERM, and that is not the main one."""
    found = [one.parent.name for one in Path(f"/proc/{pid}/task").glob("*/status")
             if not int(one.read_text().partition("SigBlk:")[2].split()[0], 16) & STOP]  # fmt: skip
    return len(found) == 1 and found != [str(pid)]


def test_a_stop_lets_a_request_end(server: Server) -> None:
    """A refused one waits for a second."""
    body = b"grant_type=refresh_token&client_id=a&client_secret=b"
    length, request_id = f"Content-Length: {len(body)}", "X-Request-ID: under-way"
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(post(length, request_id, "Expect: 100-continue"))
            assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"  # it is being handled
            connection.sendall(body)
            server.process.terminate()
            assert connection.recv(100).startswith(b"HTTP/1.1 401 ")
        assert server.process.wait(20) == 0
        assert lines(server)
        assert "Traceback" not in server.log
        # What waited to be written is written.
        assert "No client has" in server.flask("explain", "under-way")
    finally:
        server.restart()
