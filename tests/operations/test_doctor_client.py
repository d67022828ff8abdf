"""`flask doctor --client` against applications that work, and against those that do not."""

import json
import os
import signal
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from flask import Flask, Response, redirect, request
from sqlalchemy import create_engine, text
from werkzeug.serving import make_server

from sso.doctor.command import doctor_command
from sso.process import http_call
from tests.operations.conftest import command
from tests.support.listeners import certificate, listening
from tests.support.processes import ROOT, Server, free_port, wait_for
from tests.support.signing import EC, public

Findings = list[dict[str, Any]]
CALLBACK = "http://127.0.0.1:9/callback"


def examine(server: Server, client_id: str, *options: str, **environ: str) -> tuple[int, Findings]:
    """The exit code, and the findings about the connection."""
    inherited = {name: None for name in os.environ if name.startswith("SSO_")}
    settings = {k: v for k, v in server.environ.items() if k.startswith("SSO_")}
    done = CliRunner().invoke(
        doctor_command,
        ["--client", client_id, *options, "--json"],
        env={**inherited, **settings, **environ},
    )
    assert isinstance(done.exception, SystemExit | None), done.exception
    report = json.loads(done.stdout)
    assert report["ok"] == (done.exit_code == 0)
    return done.exit_code, [one for one in report["findings"] if one["name"] not in GENERAL]


GENERAL = ("settings", "database", "clock and database", "schema")


def named(found: Findings, name: str) -> dict[str, Any]:
    (one,) = [one for one in found if one["name"] == name]
    return one


class Application:
    """A small application, and what it has been sent."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.headers: list[dict[str, str]] = []
        app = self.flask = Flask("application")

        @app.before_request
        def note() -> None:
            self.seen.append(f"{request.method} {request.full_path}")
            self.headers.append(dict(request.headers))

        @app.get("/callback")
        def callback() -> Response:
            return Response("no code", 400)

        @app.get("/")
        def home() -> str:
            return "welcome"

        @app.get("/moved")
        def moved() -> Any:
            return redirect("https://www.books.example/moved?secret=1")

        @app.get("/home-again")
        def home_again() -> Any:
            return redirect("/")

        @app.get("/down")
        def down() -> Response:
            return Response("", 503)

        @app.post("/logout")
        def logout() -> str:
            return "signed out"

    @contextmanager
    def serving(self, pem: Path | None = None) -> Iterator[str]:
        """Its origin, with TLS if there is a certificate."""
        context = None
        if pem:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem)
        server = make_server("127.0.0.1", free_port(), self.flask, True, ssl_context=context)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"{'https' if pem else 'http'}://127.0.0.1:{server.port}"
        finally:
            server.shutdown()
            thread.join(10)
            server.server_close()


@contextmanager
def registered(server: Server, redirect_uri: str, *options: str) -> Iterator[str]:
    described = ("--name", "Books", "--redirect-uri", redirect_uri, *options, "--json")
    client_id = json.loads(command(server, "client", "create", *described))["client_id"]
    try:
        yield client_id
    finally:
        command(server, "client", "delete", client_id, "--yes")


def left_behind(server: Server) -> dict[str, int]:
    """How many rows there are of what a run could leave."""
    engine = create_engine(server.environ["SSO_DATABASE_URL"])
    tables = (
        "users", "browser_sessions", "consents", "grants", "authorization_codes", "tokens",
        "totp_secrets", "mails", "logout_deliveries",
    )  # fmt: skip
    with engine.connect() as connection:
        found = {one: connection.scalar(text(f"SELECT count(*) FROM {one}")) for one in tables}
    engine.dispose()
    return found


def test_a_healthy_connection(server: Server) -> None:
    application = Application()
    before = left_behind(server)
    with (
        application.serving() as origin,
        registered(
            server, f"{origin}/callback", "--post-logout-redirect-uri", f"{origin}/",
            "--backchannel-logout-uri", f"{origin}/logout", "--group", "staff", "--require-mfa",
        ) as client_id,
    ):  # fmt: skip
        code, found = examine(server, client_id)
        assert (code, {one["status"] for one in found}) == (0, {"ok"})
        assert [one["name"] for one in found] == [
            "client", "redirect URI", "post-logout URI", "back-channel logout", "sign-in",
        ]  # fmt: skip
        assert "a member of staff" in named(found, "sign-in")["seen"]
        assert f"{origin}/callback" in named(found, "sign-in")["seen"]
        # But for the audit trail, as if nothing had happened.
        assert left_behind(server) == before

        def is_told() -> bool:
            told = json.loads(command(server, "audit", "list", "--client", client_id, "--json"))
            return {"code_issued", "consent_given"} <= {one["event"] for one in told}

        wait_for(is_told, "the audit trail, which is written within a second")
    # The application has been asked for its pages, without anything that could be stolen or used.
    assert application.seen == ["GET /callback?", "GET /?", "OPTIONS /logout?"]
    for headers in application.headers:
        assert headers.keys() <= {"Host", "Accept-Encoding", "Cache-Control", "User-Agent",
                                  "Connection"}  # fmt: skip


def test_for_people(server: Server) -> None:
    with registered(server, f"http://127.0.0.1:{free_port()}/callback") as client_id:
        done = server.try_flask("doctor", "--client", "book")
        assert f"ok       client               Books ({client_id})" in done.stdout
        assert "wrong    redirect URI" in done.stdout
        assert "fix: start the application" in done.stdout
        assert "skipped  back-channel logout" in done.stdout
        assert "ok       sign-in" in done.stdout
    assert (done.returncode, done.stderr.splitlines()[-1][:6]) == (1, "Error:")


def test_over_tls(server: Server, tmp_path: Path) -> None:
    """As browsers see it: with the authority that the operator trusts, and without."""
    pem = certificate(tmp_path, 90)
    with (
        Application().serving(pem) as origin,
        registered(
            server, f"{origin}/callback", "--backchannel-logout-uri", f"{origin}/logout"
        ) as client_id,
    ):
        code, found = examine(server, client_id, REQUESTS_CA_BUNDLE=str(pem))
        assert named(found, "redirect URI")["status"] == "ok"
        # The worker knows nothing of that setting.
        assert (code, named(found, "back-channel logout")["status"]) == (1, "wrong")
        assert "SSL_CERT_FILE" in named(found, "back-channel logout")["hint"]
        code, found = examine(server, client_id, SSL_CERT_FILE=str(pem))
        assert (code, {one["status"] for one in found}) == (0, {"ok"})
        code, found = examine(server, client_id)
        refused = named(found, "redirect URI")
        assert (refused["status"], "self-signed" in refused["seen"]) == ("warning", True)
        assert "REQUESTS_CA_BUNDLE" in refused["hint"]


@pytest.mark.parametrize(
    ("days", "address", "status", "hint"),
    [
        (0, "127.0.0.1", "wrong", "renew the certificate"),
        (5, "127.0.0.1", "warning", "renew it"),
        (90, "127.0.0.2", "wrong", "install a certificate for 127.0.0.1"),
    ],
)
def test_a_certificate(
    server: Server, tmp_path: Path, days: int, address: str, status: str, hint: str
) -> None:
    pem = certificate(tmp_path, days, address)
    with (
        Application().serving(pem) as origin,
        registered(server, f"{origin}/callback") as client_id,
    ):
        _, found = examine(server, client_id, REQUESTS_CA_BUNDLE=str(pem))
    shown = next(one for one in found if one["name"] == "redirect URI")
    assert (shown["status"], shown["hint"]) == (status, hint)


def test_the_other_scheme(server: Server, tmp_path: Path) -> None:
    with (
        Application().serving() as plain,
        Application().serving(certificate(tmp_path, 90)) as secured,
    ):
        as_https, as_http = plain.replace("http:", "https:"), secured.replace("https:", "http:")
        with registered(server, f"{as_https}/callback") as client_id:
            code, found = examine(server, client_id)
            assert (code, named(found, "redirect URI")["status"]) == (1, "wrong")
            assert "speaks plain http, but https is" in named(found, "redirect URI")["seen"]
        with registered(server, f"{as_http}/callback") as client_id:
            code, found = examine(server, client_id)
            assert (code, named(found, "redirect URI")["status"]) == (1, "wrong")
            assert f"register {secured}/callback" in named(found, "redirect URI")["hint"]
            assert named(found, "sign-in")["status"] == "ok"


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("moved", "warning", "--add-redirect-uri https://www.books.example/moved"),
        ("home-again", "ok", ""),
        ("nothing", "warning", "documentation"),
        ("down", "warning", "proxy"),
    ],
)
def test_what_the_application_answers(server: Server, path: str, status: str, words: str) -> None:
    application = Application()
    with (
        application.serving() as origin,
        registered(
            server, f"{origin}/{path}", "--post-logout-redirect-uri", f"{origin}/moved"
        ) as client_id,
    ):
        code, found = examine(server, client_id)
    assert (code, named(found, "redirect URI")["status"]) == (0, status)
    assert words in (named(found, "redirect URI")["hint"] or "")
    assert named(found, "post-logout URI")["status"] == "ok"  # a browser follows
    assert "secret" not in json.dumps(found)
    assert application.seen == [f"GET /{path}?", "GET /moved?"]  # which the doctor does not


def test_a_path_that_takes_no_logout_tokens(server: Server) -> None:
    with Application().serving() as origin:
        for path, status in (("", "warning"), ("nothing", "warning"), ("logout", "ok")):
            uri = f"{origin}/{path}"
            with registered(
                server, f"{origin}/callback", "--backchannel-logout-uri", uri
            ) as client_id:
                _, found = examine(server, client_id)
                assert named(found, "back-channel logout")["status"] == status


def endless_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-A: " + b"a" * 1000 + b"\r\n")


def endless_line(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"a" * 65536)


def endless_body(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    endless_line(connection)


def never(connection: socket.socket) -> None:
    while connection.recv(1000):
        pass


def trickle(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X: y\r\n")
        time.sleep(0.2)


def hang_up(connection: socket.socket) -> None:
    connection.recv(1000)


def speaking(talk: Callable[[socket.socket], None]) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                talk(self.request)

    return Handler


@pytest.mark.parametrize(
    ("talk", "status", "seen"),
    [
        (endless_headers, "warning", "does not speak HTTP"),
        (endless_line, "warning", "does not speak HTTP"),
        (endless_body, "ok", "/a answers"),
        (never, "warning", "does not answer"),
        (trickle, "warning", "does not answer"),
        (hang_up, "warning", "does not speak HTTP"),
    ],
)
def test_whatever_listens_there(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    talk: Callable[[socket.socket], None],
    status: str,
    seen: str,
) -> None:
    defaults = http_call.call.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "seconds", 2.0)
    port = free_port()
    uris = [f"{scheme}://127.0.0.1:{port}/{path}" for scheme, path in
            (("http", "a"), ("http", "b"), ("https", "a"))]  # fmt: skip
    more = [word for uri in uris[1:] for word in ("--redirect-uri", uri)]
    with listening(speaking(talk), port), registered(server, uris[0], *more) as client_id:
        began = time.monotonic()
        _, found = examine(server, client_id)
        assert time.monotonic() - began < 20
    first, second, third = [one for one in found if one["name"] == "redirect URI"]
    assert (first["status"], seen in first["seen"]) == (status, True)
    # What has cost its time once is not tried again.
    assert second["status"] == ("ok" if status == "ok" else "skipped")
    assert third["status"] in ("warning", "wrong")
    assert named(found, "sign-in")["status"] == "ok"


def test_a_name_that_nobody_knows(server: Server) -> None:
    with registered(server, "https://books.invalid/callback") as client_id:
        code, found = examine(server, client_id)
    assert (code, named(found, "redirect URI")["status"]) == (0, "warning")
    assert "unknown on this machine" in named(found, "redirect URI")["seen"]


def test_programs_on_the_users_device(server: Server) -> None:
    application = Application()
    with (
        application.serving() as origin,
        registered(
            server, "com.example.books:/callback", "--public",
            "--redirect-uri", f"{origin}/callback",
            "--post-logout-redirect-uri", "com.example.books:/bye",
        ) as client_id,
    ):  # fmt: skip
        code, found = examine(server, client_id)
    assert code == 0
    for one in found:
        if one["name"] in ("redirect URI", "post-logout URI"):
            assert one["status"] == "skipped"
            assert "on the user's device" in one["seen"]
    assert "com.example.books:/callback" in named(found, "sign-in")["seen"]
    assert application.seen == []


def test_a_device(server: Server) -> None:
    """A client without a browser of its own has no sign-in that comes back."""
    made = command(server, "client", "create", "--name", "TV", "--public", "--device", "--json")
    code, found = examine(server, json.loads(made)["client_id"])
    assert code == 0
    assert named(found, "sign-in")["status"] == "skipped"
    assert "it has no redirect URI" in named(found, "sign-in")["seen"]


def test_an_application_on_the_developers_machine(server: Server) -> None:
    """Its loopback address is not this machine's, if people reach the server elsewhere."""
    with registered(server, "http://localhost:3000/callback") as client_id:
        _, found = examine(server, client_id, SSO_BASE_URL="https://login.invalid/api/auth")
    assert named(found, "redirect URI")["status"] == "skipped"
    assert named(found, "sign-in")["status"] == "wrong"


def test_a_disabled_client(server: Server) -> None:
    with registered(server, f"http://127.0.0.1:{free_port()}/callback") as client_id:
        command(server, "client", "disable", client_id)
        code, found = examine(server, client_id)
    assert (code, named(found, "client")["status"]) == (1, "wrong")
    assert named(found, "client")["hint"] == f"run: flask client enable {client_id}"
    assert named(found, "sign-in")["status"] == "skipped"


def test_a_client_that_is_not_there(server: Server) -> None:
    done = server.try_flask("doctor", "--client", "nobody", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: there is no client nobody; see: flask client list\n"


def test_a_server_that_is_not_there(server: Server) -> None:
    before = left_behind(server)
    with registered(server, "https://books.invalid/callback") as client_id:
        elsewhere = f"http://127.0.0.1:{free_port()}/api/auth"
        code, found = examine(server, client_id, SSO_BASE_URL=elsewhere)
        assert (code, named(found, "sign-in")["status"]) == (1, "wrong")
        assert "start the server" in named(found, "sign-in")["hint"]
        assert left_behind(server) == before


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)]
)
def test_a_run_that_is_stopped(server: Server, number: signal.Signals) -> None:
    """It waits for a server that never answers, with its user made."""
    port, before = free_port(), left_behind(server)
    with (
        listening(speaking(never), port),
        registered(server, "com.example.books:/callback", "--public") as client_id,
    ):
        process = subprocess.Popen(
            [sys.executable, "-m", "flask", "doctor", "--client", client_id],
            cwd=ROOT,
            env={**server.environ, "SSO_BASE_URL": f"http://127.0.0.1:{port}/api/auth"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: left_behind(server) != before, "the temporary user")
            process.send_signal(number)
            assert process.wait(20) != 0
        finally:
            process.kill()
            process.wait()
        assert left_behind(server) == before


def test_keys_of_a_client(server: Server, tmp_path: Path) -> None:
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [public(EC)]}))
    own = ("--auth-method", "private_key_jwt", "--jwks", str(jwks), "--profile", "fapi2",
           "--request-object-alg", "ES256")  # fmt: skip
    with registered(server, CALLBACK, *own) as client_id:
        _, found = examine(server, client_id)
        assert "1 public keys, for ES256" in named(found, "keys")["seen"]
        assert "a temporary user signs in" in named(found, "sign-in")["seen"]
        untried = named(found, "application")
        assert untried["status"] == "skipped"
        words = "client assertions, signed requests, pushed requests, DPoP proofs"
        assert f"not tried: {words}. If it is refused, see: flask explain" in untried["seen"]
        command(server, "client", "update", client_id, "--auth-alg", "PS256")
        code, found = examine(server, client_id)
        assert code == 1
        assert named(found, "keys")["seen"] == "no key is for PS256, to sign client assertions"
    url = f"https://localhost:{free_port()}/jwks"
    with registered(server, CALLBACK, *own[:2], "--jwks-uri", url) as client_id:
        code, found = examine(server, client_id)
        assert code == 1
        assert "leads to a private address" in named(found, "keys")["seen"]
