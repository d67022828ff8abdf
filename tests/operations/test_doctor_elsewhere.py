"""`flask doctor` through TLS, and beside Redis and a mail server."""

import socket
import socketserver
import ssl
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from shutil import which

import pytest

from tests.operations.test_doctor import examine
from tests.support.listeners import certificate, listening
from tests.support.processes import Server, free_port, require, wait_for


def tls_in_front_of(server: Server, pem: Path) -> type[socketserver.BaseRequestHandler]:
    """Terminates TLS, and passes everything on as it comes: the plainest of proxies."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                outside = context.wrap_socket(self.request, server_side=True)
            except (ssl.SSLError, OSError):
                return  # a client that does not believe the certificate
            with closing(outside), socket.create_connection(("127.0.0.1", server.port)) as inside:
                back = threading.Thread(target=_pump, args=(inside, outside), daemon=True)
                back.start()
                _pump(outside, inside)
                back.join()

    return Handler


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except (OSError, ValueError):
        return


def test_through_tls(tmp_path: Path) -> None:
    port, pem, short = free_port(), certificate(tmp_path, 90), certificate(tmp_path, 3)
    address = f"https://127.0.0.1:{port}/api/auth"
    with Server(tmp_path, workers=1, SSO_BASE_URL=address).running() as server:
        with listening(tls_in_front_of(server, pem), port):
            code, found = examine(server, REQUESTS_CA_BUNDLE=str(pem))
            assert (code, found["tls"]["status"], found["headers"]["status"]) == (0, "ok", "ok")
            assert found["cookies"]["seen"] == "__Host-sso with httponly, samesite=lax, secure"
            assert found["code flow"]["status"] == "ok"
            code, found = examine(server)
            assert (code, found["tls"]["status"], found["discovery"]["status"]) == (
                1, "wrong", "skipped",
            )  # fmt: skip
            assert "REQUESTS_CA_BUNDLE" in found["tls"]["hint"]
            assert found["code flow"]["status"] == "skipped"
        other = free_port()
        with listening(tls_in_front_of(server, short), other):
            changed = {"SSO_BASE_URL": f"https://127.0.0.1:{other}/api/auth"}
            _, found = examine(server, REQUESTS_CA_BUNDLE=str(short), **changed)
            assert found["tls"]["status"] == "warning"


def test_redis_that_answers(server: Server, tmp_path: Path) -> None:
    port = free_port()
    process = subprocess.Popen(
        [
            *(require("Redis", which("redis-server")), "--port", str(port)),
            *("--bind", "127.0.0.1", "--save", "", "--requirepass", "sesame"),
        ],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    try:
        right = {"SSO_REDIS_URL": f"redis://:sesame@127.0.0.1:{port}/0"}
        wait_for(lambda: examine(server, **right)[1]["redis"]["status"] == "ok", "Redis")
        wrong = {"SSO_REDIS_URL": f"redis://:hunter2@127.0.0.1:{port}/0"}
        assert examine(server, **wrong)[1]["redis"]["status"] == "wrong"
    finally:
        process.terminate()
        process.wait(20)


class MailServer(socketserver.StreamRequestHandler):
    """Knows as much of RFC 5321 as is said before a mail is sent."""

    def handle(self) -> None:
        self.wfile.write(b"220 mail.example ESMTP\r\n")
        for line in self.rfile:
            verb = line.split()[0].upper()
            answers = {b"EHLO": b"250-mail.example\r\n250 AUTH PLAIN", b"QUIT": b"221 Bye"}
            if verb == b"AUTH":  # PLAIN: base64 of \0me\0sesame
                told = line.split()[-1]
                answer = b"235 OK" if told == b"AG1lAHNlc2FtZQ==" else b"535 No"
            else:
                answer = answers.get(verb, b"250 OK")
            self.wfile.write(answer + b"\r\n")
            if verb == b"QUIT":
                return


@pytest.mark.parametrize(
    ("user", "status"), [("", "ok"), ("me:sesame@", "warning"), ("me:hunter2@", "wrong")]
)
def test_mail(server: Server, user: str, status: str) -> None:
    port = free_port()
    with listening(MailServer, port):
        _, found = examine(server, SSO_SMTP_URL=f"smtp://{user}127.0.0.1:{port}")
    assert found["mail"]["status"] == status
    assert "sesame" not in str(found)
