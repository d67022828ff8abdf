"""Real nginx, Caddy, Envoy and Traefik, configured by their presets, and an application behind."""

import base64
import hashlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from joserfc import jwt
from joserfc.jwk import KeySet

from tests.applications.conftest import DANA
from tests.applications.proxies import FORGED, Person, caddy, envoy, nginx, traefik
from tests.applications.proxies import server as server
from tests.applications.software import Application
from tests.applications.test_apis import large
from tests.support.listeners import certificate
from tests.support.processes import Server
from tests.support.proxied import IDENTITY, NAVIGATION

ARRIVED = threading.Event()


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    """An application that shows what it gets."""

    class Handler(BaseHTTPRequestHandler):
        """Names of headers arrive as they were sent: other servers drop those with underscores."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers.get("Upgrade"):
                self._be_a_socket()
            elif self.path == "/stream":
                self._stream()
            else:
                self._show()

        do_POST = do_HEAD = do_OPTIONS = do_GET

        def _show(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = json.dumps({"method": self.command, "headers": headers}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if self.command != "HEAD" else b"")

        def _be_a_socket(self) -> None:
            """Send back what comes, after the handshake (RFC 6455 §4.2.2)."""
            key = f"{self.headers['Sec-WebSocket-Key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            accept = base64.b64encode(hashlib.sha1(key.encode()).digest())
            self.send_header("Sec-WebSocket-Accept", accept.decode())
            self.end_headers()
            self.wfile.write(self.rfile.read(5))
            self.close_connection = True

        def _stream(self) -> None:
            """Send an event, and the next one after the first has arrived."""
            ARRIVED.clear()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"data: 1\n\n")
            self.wfile.flush()
            ARRIVED.wait(10)
            self.wfile.write(b"data: 2\n\n")
            self.close_connection = True

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as upstream:
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{upstream.server_port}"
        upstream.shutdown()


@pytest.mark.parametrize("proxy", [nginx, caddy, envoy, pytest.param(traefik, marks=large)])
def test_an_application_without_sign_in(
    tmp_path: Path,
    server: Server,
    echo: str,
    proxy: Callable[[Application], AbstractContextManager[None]],
) -> None:
    options = ("--option", f"upstream={echo}", "--option", f"server={server.origin}")
    app = Application(
        tmp_path, server, proxy.__name__, *options, "--group", "staff", "--public-path", "/health"
    )
    with proxy(app):
        person, stranger = Person(app), Person(app)
        check_sign_in(person, server)
        check_forged_headers(person, stranger)
        check_what_is_no_page(person, stranger)
        check_sockets_and_streams(person, Person(app))
        check_sign_out(person)
        check_a_disabled_account(person, server)


def test_nginx_keeps_its_connection_to_a_server_with_tls(tmp_path: Path, server: Server) -> None:
    """It names the host in the handshake, and asks again over the same connection."""
    arrivals: list[tuple[int, str, str]] = []
    names: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            arrivals.append((self.client_address[1], self.headers["Host"], self.path))
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate(tmp_path, 1, "localhost"))
    tls.sni_callback = lambda _socket, name, _context: names.append(name or "")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as upstream:
        upstream.daemon_threads = True
        upstream.socket = tls.wrap_socket(upstream.socket, server_side=True)
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        host = f"localhost:{upstream.server_port}"
        app = Application(tmp_path, server, "nginx", "--option", f"server=https://{host}/")
        with nginx(app):
            person = Person(app)
            assert [person.open("/page").status_code for _ in range(3)] == [403] * 3
        upstream.shutdown()
    ask = f"/api/auth/forward-auth/{app.registered['client_id']}?answer=status"
    assert {arrival[1:] for arrival in arrivals} == {(host, ask)}
    assert len({port for port, _, _ in arrivals}) == 1
    assert names == ["localhost"]


def check_sign_in(person: Person, server: Server) -> None:
    long = "/wiki/a%20page?next=%2Fb&name=%C3%BC&fill=" + "x" * 1800
    answer = person.open(long)
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith(f"{server.base_url}/oauth2/authorize?")
    answer = person.follow(answer)
    assert (answer.status_code, answer.url) == (200, person.app.url + long)
    headers = answer.json()["headers"]
    assert headers["remote-email"] == DANA.email
    assert headers["remote-groups"] == "staff"
    assert headers["remote-name"].encode("latin-1").decode() == "Zoë Demo"
    keys = KeySet.import_key_set(requests.get(f"{server.base_url}/oauth2/jwks", timeout=60).json())
    claims = jwt.decode(headers["x-sso-assertion"], keys, algorithms=["ES256"]).claims
    assert (claims["sub"], claims["aud"]) == (headers["remote-user"], person.app.url)


def check_forged_headers(person: Person, stranger: Person) -> None:
    for who, user in ((person, person.shown("/")["remote-user"]), (stranger, "")):
        headers = who.shown("/health", **FORGED)
        identity = [headers.get(name.lower(), "") for name in IDENTITY]
        assert "forged" not in str([v for k, v in headers.items() if "remote" in k or "sso" in k])
        assert identity[0] == user
        assert any(identity) == bool(user)
    answer = stranger.open("/", **FORGED)
    assert answer.status_code == 303, "the public path was forged"
    assert "evil" not in answer.headers["Location"]


def check_what_is_no_page(person: Person, stranger: Person) -> None:
    call = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    answer = stranger.open("/feed", **call)
    assert (answer.status_code, answer.json()["error"]) == (401, "login_required")
    assert person.shown("/feed", **call)["remote-email"] == DANA.email
    url, form = f"{person.app.url}/form", {"text": "x" * 5000}
    sent = person.http.post(url, form, headers=NAVIGATION, timeout=60)
    assert (sent.status_code, sent.json()["method"]) == (200, "POST")
    headers = {**NAVIGATION, "Referer": f"{url}?id=7"}
    sent = stranger.http.post(url, form, headers=headers, allow_redirects=False, timeout=60)
    assert sent.status_code == 303
    assert stranger.follow(sent).url == f"{url}?id=7"


def check_sockets_and_streams(person: Person, stranger: Person) -> None:
    assert socket_says(person) == ("101", b"hello")
    assert socket_says(stranger) == ("401", b"")
    answer = person.http.get(f"{person.app.url}/stream", stream=True, timeout=60)
    events = answer.iter_lines()
    assert next(events) == b"data: 1"
    assert not ARRIVED.is_set()
    ARRIVED.set()
    assert b"data: 2" in list(events)
    assert person.shown("/file", Range="bytes=0-9")["range"] == "bytes=0-9"
    head = person.http.head(f"{person.app.url}/page", headers=NAVIGATION, timeout=60)
    assert (head.status_code, head.text) == (200, "")
    preflight = stranger.http.options(
        f"{person.app.url}/feed",
        headers={"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"},
        timeout=60,
    )
    assert preflight.status_code == 401


def socket_says(person: Person) -> tuple[str, bytes]:
    """Open a WebSocket and send it something; return the status and the answer."""
    place = urlsplit(person.app.url)
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in person.http.cookies)
    lines = [
        "GET /socket HTTP/1.1", f"Host: {place.netloc}", f"Origin: {person.app.url}",
        "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-Fetch-Mode: websocket",
        f"Cookie: {cookies}",
    ]  # fmt: skip
    with socket.create_connection((place.hostname, place.port or 80), timeout=60) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        answer = connection.makefile("rb")
        status = answer.readline().split()[1].decode()
        while answer.readline().strip():
            pass
        if status != "101":
            return status, b""
        connection.sendall(b"hello")
        return status, answer.read(5)


def check_sign_out(person: Person) -> None:
    cookies = person.http.cookies.copy()
    person.follow(person.open("/.sso/sign-out"), until='type="password"')
    assert person.open("/").status_code == 303
    person.http.cookies.update(cookies)  # of a thief
    assert person.open("/").status_code == 303


def check_a_disabled_account(person: Person, server: Server) -> None:
    person.http = requests.Session()
    assert person.follow(person.open("/page")).url == f"{person.app.url}/page"
    server.flask("user", "disable", DANA.email)
    assert person.open("/page").status_code == 303
    server.flask("user", "enable", DANA.email)
