"""The host of a client metadata document wants to reach private services, or to keep us busy.

A real HTTPS server answers. The resolver is ours; 127.0.0.1 stands for a public address, and
127.0.0.9 is what it is: private.
"""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.models import Client, User
from sso.oauth import document_clients
from sso.process import addresses
from tests.conftest import Clock
from tests.support import listeners
from tests.support.actors import Browser
from tests.support.agents import agent

pytestmark = pytest.mark.slow

NAME, PUBLIC, PRIVATE = "agent.example", "127.0.0.1", "127.0.0.9"
LIMIT, PATIENCE = 0.8, 3.0  # seconds; PATIENCE allows for a slow machine
Handler = Callable[[socket.socket], None]


class Host:
    """What answers at each path, and what was requested.

    `resolved`: the addresses that the name has, one for each time that it is looked up; the last
    one stays.
    """

    def __init__(self, tls: ssl.SSLContext, server: socket.socket) -> None:
        self.tls, self.server = tls, server
        self.port: int = server.getsockname()[1]
        self.handlers: dict[str, Handler] = {}
        self.requested: list[str] = []
        self.resolved = [PUBLIC]
        self.lookups = 0
        self.is_over = threading.Event()

    def url(self, path: str = "/client.json", name: str = NAME) -> str:
        return f"https://{name}:{self.port}{path}"

    def document(self, path: str = "/client.json", **changes: Any) -> bytes:
        fields = {
            "client_id": self.url(path),
            "client_name": "Helpful Agent",
            "redirect_uris": ["http://127.0.0.1/callback"],
            **changes,
        }
        return json.dumps(fields).encode()

    def publish(self, body: bytes, path: str = "/client.json", more: str = "") -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{more}"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        self.handlers[path] = lambda peer: peer.sendall(head.encode() + body)

    def lookup(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert host in (NAME, "other.example")
        address = self.resolved[min(self.lookups, len(self.resolved) - 1)]
        self.lookups += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def serve(self) -> None:
        while not self.is_over.is_set():
            with suppress(TimeoutError):
                connection, _ = self.server.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        try:
            connection.getpeername()  # `wrap_socket` would leave one open whose peer is gone
        except OSError:
            connection.close()
            return
        with suppress(OSError, IndexError), self.tls.wrap_socket(connection, True) as peer:
            path = peer.recv(65536).split(b" ")[1].decode()
            self.requested.append(path)
            self.handlers[path](peer)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    certificate = listeners.certificate(tmp_path, 10, NAME)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    judged = addresses.forbidden
    monkeypatch.setattr(
        addresses,
        "forbidden",
        lambda address, only_public: None if address == PUBLIC else judged(address, only_public),
    )
    monkeypatch.setattr(document_clients, "SECONDS", LIMIT)
    with socket.create_server(("0.0.0.0", 0), backlog=64) as server:
        server.settimeout(0.05)
        host = Host(tls, server)
        monkeypatch.setattr(socket, "getaddrinfo", host.lookup)
        thread = threading.Thread(target=host.serve)
        thread.start()
        yield host
        host.is_over.set()
        thread.join()


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_CLIENT_DOCUMENTS="any")


def sends(start: str, then: bytes, pause: float) -> Handler:
    """Send `start`, then `then` again and again, for ten seconds."""

    def handler(peer: socket.socket) -> None:
        peer.sendall(start.encode())
        ends = monotonic() + 10
        while monotonic() < ends:
            peer.sendall(then)
            sleep(pause)

    return handler


JSON = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def test_a_document_is_read(app: Flask, browser: Browser, user: User, host: Host) -> None:
    """Without this, the rest of the file would prove nothing."""
    host.publish(host.document())
    browser.authorize(agent(app, host.url()))
    page = browser.sign_in()
    assert ("decision", "allow") in page.buttons
    assert page.html.count("<h1") == 1
    assert browser.allow().code
    assert host.requested == ["/client.json"]


def _send(answer: bytes, peer: socket.socket) -> None:
    peer.sendall(answer)


def test_a_redirect_to_a_private_service(app: Flask, browser: Browser, host: Host) -> None:
    host.publish(host.document("/secret"), "/secret")
    for number, status in enumerate((301, 302, 303, 307, 308)):
        for where in (host.url("/secret"), f"https://{PRIVATE}:{host.port}/secret", "/secret"):
            path = f"/{number}/{len(where)}"
            answer = f"HTTP/1.1 {status} X\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n"
            host.handlers[path] = partial(_send, answer.encode())
            page = browser.authorize(agent(app, host.url(path)))
            assert page.status == 400
            assert f"answered {status}" in page.html
    assert "/secret" not in host.requested


def test_a_name_that_leads_elsewhere_at_the_second_look(
    app: Flask, browser: Browser, host: Host
) -> None:
    """The address that was checked is the one that is called."""
    host.publish(host.document())
    host.resolved = [PUBLIC, PRIVATE]
    assert browser.authorize(agent(app, host.url())).status == 200
    assert host.lookups == 1
    host.publish(host.document("/second"), "/second")
    page = browser.authorize(agent(app, host.url("/second")))
    assert page.status == 400
    assert "private address" in page.html
    assert host.requested == ["/client.json"]


@pytest.mark.parametrize(
    ("name", "handler"),
    [
        ("a byte at a time", sends(JSON + "Content-Length: 9000\r\n\r\n", b" ", 0.05)),
        ("headers without end", sends(JSON, b"a: b\r\n", 0.05)),
        ("nothing", sends("", b"", 0.05)),
        ("interim answers", sends("", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05)),
    ],
)
def test_a_slow_host(app: Flask, browser: Browser, host: Host, name: str, handler: Handler) -> None:
    host.handlers["/client.json"] = handler
    begun = monotonic()
    page = browser.authorize(agent(app, host.url()))
    assert monotonic() - begun < LIMIT + PATIENCE
    assert page.status == 400
    assert "in time" in page.html


@pytest.mark.parametrize(
    ("start", "then"),
    [
        (JSON + "Content-Length: 99999999999\r\n\r\n", b" " * 4096),
        (JSON + "\r\n", b" " * 4096),
        (JSON + "Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b" " * 4096 + b"\r\n"),
        (JSON, b"a: " + b"b" * 4096 + b"\r\n"),
    ],
)
def test_an_answer_without_end(
    app: Flask, browser: Browser, host: Host, start: str, then: bytes
) -> None:
    host.handlers["/client.json"] = sends(start, then, 0)
    begun = monotonic()
    page = browser.authorize(agent(app, host.url()))
    assert monotonic() - begun < LIMIT + PATIENCE
    assert page.status == 400


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[" * 10_000, "not JSON"),
        (b'{"a":' * 2_000, "not JSON"),
        (b'{"x": ' + b"1" * 9_000 + b"}", "not JSON"),
        (b'{"client_id": NaN}', "is not the URL"),
        (b'{"client_id": "x"}' * 2, "not JSON"),
        (b"\x1f\x8b\x08\x00" + b"\x00" * 100, "not JSON"),
    ],
)
def test_json_that_is_none(
    app: Flask, browser: Browser, host: Host, body: bytes, reason: str
) -> None:
    host.publish(body, more="Content-Encoding: gzip\r\n" if body[:1] == b"\x1f" else "")
    page = browser.authorize(agent(app, host.url()))
    assert page.status == 400
    assert reason in page.html


def test_a_certificate_for_another_name(app: Flask, browser: Browser, host: Host) -> None:
    """Who controls only the network of a domain does not speak for it."""
    host.publish(host.document())
    page = browser.authorize(agent(app, host.url(name="other.example")))
    assert page.status == 400
    assert "cannot be reached" in page.html
    assert host.requested == []


def test_a_document_that_changes_after_its_approval(
    app: Flask, browser: Browser, user: User, host: Host, clock: Clock
) -> None:
    """A new redirect URI is asked about; the tokens that were given before do not move there."""
    host.publish(host.document())
    party = agent(app, host.url())
    tokens = party.exchange(browser.approve(party).code).get_json()
    taken = "https://agent.example/taken-over"
    host.publish(host.document(client_name="Your Bank", redirect_uris=[taken]))
    clock.move(minutes=6)
    thief = agent(app, host.url(), taken)
    for _ in range(100):  # the old copy serves while the new one is read
        if browser.authorize(thief, scope="openid").status == 200:
            break
        sleep(0.05)
    assert ("decision", "allow") in browser.page.buttons
    assert "Your Bank" in browser.page.html
    silent = browser.authorize(thief, scope="openid", prompt="none")
    assert silent.is_at_server
    assert party.userinfo(tokens["access_token"]).status_code == 200


def test_endpoints_for_programs_read_no_document(app: Flask, host: Host) -> None:
    """Only those that begin an authorization do, within their limits; nothing is stored."""
    host.publish(host.document())
    party = agent(app, host.url())
    form = {"grant_type": "authorization_code", "code": "c", "token": "t"}
    for path in ("token", "device_authorization", "revoke", "introspect"):
        response = party.post(f"/oauth2/{path}", form | party.parameters())
        assert response.status_code == 401
        assert response.get_json()["error"] == "invalid_client"
    assert host.requested == []
    with app.app_context():
        assert db.session.scalar(select(func.count()).select_from(Client)) == 0
