"""Real nginx, Caddy and Envoy, configured by their presets, and an application behind."""

import base64
import hashlib
import json
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import requests
from joserfc import jwt
from joserfc.jwk import KeySet

from tests.applications.conftest import DANA, PASSWORD
from tests.applications.software import Application, python
from tests.support.processes import Server, require
from tests.support.proxied import IDENTITY, NAVIGATION

FORGED = {
    **dict.fromkeys(IDENTITY, "forged"),
    **dict.fromkeys(("Remote_User", "remote_groups", "X_Sso_Assertion"), "forged"),
    "X-Sso_Assertion": "forged",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Uri": "/health",
    "X-Forwarded-Method": "OPTIONS",
}  # fmt: skip
ARRIVED = threading.Event()
NGINX = """daemon off;
master_process off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
access_log off;
client_body_temp_path {folder}/body;
proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi;
scgi_temp_path {folder}/scgi;
{site}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with Server(folder, workers=1, SSO_TRUSTED_PROXIES="1").running() as server:
        server.flask(
            "user", "create", "--email", DANA.email, "--name", "Zoë Demo", "--group", "staff",
            "--email-verified", "--password-stdin", stdin=PASSWORD,
        )  # fmt: skip
        yield server


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


def nginx(app: Application) -> AbstractContextManager[None]:
    program = require("nginx", shutil.which("nginx", path="/usr/sbin"))
    site = app.printed("nginx").replace("    listen ", "    listen 127.0.0.1:")
    file = app.folder / "nginx.conf"
    file.write_text(NGINX.format(folder=app.folder, site=site))
    return app.running(program, "-p", str(app.folder), "-c", str(file), path="/health")


def caddy(app: Application) -> AbstractContextManager[None]:
    program = require("Caddy", shutil.which("caddy"))
    site = app.printed("Caddyfile").replace("    route {", "    bind 127.0.0.1\n    route {")
    app.environ |= dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(app.folder))
    file = app.folder / "Caddyfile"
    file.write_text("{\n    admin off\n}\n" + site)
    return app.running(program, "run", "--config", str(file), path="/health")


def envoy(app: Application) -> AbstractContextManager[None]:
    site = app.printed("envoy.yaml").replace(
        'address: "::", ipv4_compat: true', "address: 127.0.0.1"
    )
    file = app.folder / "envoy.yaml"
    file.write_text(site)
    program = str(python("envoy") / "bin/envoy")
    options = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning")
    return app.running(program, "-c", str(file), *options, path="/health")


@dataclass
class Person:
    """A browser that has no more than cookies, redirects and forms."""

    app: Application
    http: requests.Session = field(default_factory=requests.Session)

    def open(self, uri: str, **headers: str) -> requests.Response:
        return self.http.get(
            self.app.url + uri, headers={**NAVIGATION, **headers}, allow_redirects=False, timeout=20
        )

    def shown(self, uri: str, **headers: str) -> dict[str, str]:
        """The headers that the application gets, in lower case."""
        answer = self.open(uri, **headers)
        assert answer.status_code == 200, answer.text
        headers_there: dict[str, str] = answer.json()["headers"]
        return headers_there

    def follow(self, answer: requests.Response, *, until: str = '"headers"') -> requests.Response:
        """Go on until a page has this text; sign in, allow and sign out where a page asks."""
        for _ in range(12):
            if until in answer.text:
                return answer
            if answer.is_redirect:
                url, form = urljoin(answer.url, answer.headers["Location"]), None
            elif "<form" in answer.text:
                url, form = answer.url, self._filled(answer.text)
            else:
                break
            answer = self.http.request(
                "POST" if form else "GET",
                url,
                data=form,
                headers={**NAVIGATION, "Origin": url[: url.index("/", 8)]},
                allow_redirects=False,
                timeout=20,
            )
            assert answer.status_code < 400, answer.text
        raise AssertionError(f"it ends at {answer.url}")

    def _filled(self, page: str) -> dict[str, str]:
        inputs = [
            dict(re.findall(r'(\w+)="([^"]*)"', tag)) for tag in re.findall(r"<input[^>]*>", page)
        ]
        form = {
            i["name"]: unescape(i.get("value", "")) for i in inputs if i.get("type") == "hidden"
        }
        if 'type="password"' in page:
            return {**form, "email": DANA.email, "password": PASSWORD}
        decision = "allow" if 'value="allow"' in page else "sign_out"
        return {**form, "decision": decision}


@pytest.mark.parametrize("proxy", [nginx, caddy, envoy])
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
    keys = KeySet.import_key_set(requests.get(f"{server.base_url}/oauth2/jwks", timeout=20).json())
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
    sent = person.http.post(url, form, headers=NAVIGATION, timeout=20)
    assert (sent.status_code, sent.json()["method"]) == (200, "POST")
    headers = {**NAVIGATION, "Referer": f"{url}?id=7"}
    sent = stranger.http.post(url, form, headers=headers, allow_redirects=False, timeout=20)
    assert sent.status_code == 303
    assert stranger.follow(sent).url == f"{url}?id=7"


def check_sockets_and_streams(person: Person, stranger: Person) -> None:
    assert socket_says(person) == ("101", b"hello")
    assert socket_says(stranger) == ("401", b"")
    answer = person.http.get(f"{person.app.url}/stream", stream=True, timeout=20)
    events = answer.iter_lines()
    assert next(events) == b"data: 1"
    assert not ARRIVED.is_set()
    ARRIVED.set()
    assert b"data: 2" in list(events)
    assert person.shown("/file", Range="bytes=0-9")["range"] == "bytes=0-9"
    head = person.http.head(f"{person.app.url}/page", headers=NAVIGATION, timeout=20)
    assert (head.status_code, head.text) == (200, "")
    preflight = stranger.http.options(
        f"{person.app.url}/feed",
        headers={"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"},
        timeout=20,
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
    with socket.create_connection((place.hostname, place.port or 80), timeout=20) as connection:
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
