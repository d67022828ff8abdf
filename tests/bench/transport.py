"""Sends requests: over kept-alive connections, or straight into the WSGI application."""

import io
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True)
class Request:
    """One HTTP request."""

    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)
    form: dict[str, str] | None = None

    @property
    def body(self) -> bytes:
        return urlencode(self.form).encode() if self.form is not None else b""

    def wire(self, host: str) -> bytes:
        """As it goes over the connection."""
        body = self.body
        headers = {"Host": host, **self.headers, **(FORM if self.form is not None else {})}
        if body:
            headers["Content-Length"] = str(len(body))
        lines = [
            f"{self.method} {self.target} HTTP/1.1",
            *(f"{k}: {v}" for k, v in headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def environ(self) -> dict[str, Any]:
        """As gunicorn hands it to the application."""
        path, _, query = self.target.partition("?")
        body = self.body
        form = {"CONTENT_TYPE": FORM["Content-Type"], "CONTENT_LENGTH": str(len(body))}
        return {
            "REQUEST_METHOD": self.method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "SCRIPT_NAME": "",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_HOST": "127.0.0.1",
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            **(form if body else {}),
            **{f"HTTP_{k.upper().replace('-', '_')}": v for k, v in self.headers.items()},
        }


@dataclass(frozen=True)
class Answer:
    """Status, headers by lower-case name, body; and the seconds that it took."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float


class Connection:
    """One kept-alive connection. Reads what gunicorn writes: a length or chunks."""

    def __init__(self, port: int) -> None:
        self.host = f"127.0.0.1:{port}"
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")

    def send(self, request: Request) -> Answer:
        wire = request.wire(self.host)
        begin = time.perf_counter()
        self.socket.sendall(wire)
        status = int(self.reader.readline().split(b" ", 2)[1])
        headers = {}
        while line := self.reader.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = self._body(headers)
        return Answer(status, headers, body, time.perf_counter() - begin)

    def _body(self, headers: dict[str, str]) -> bytes:
        if "chunked" not in headers.get("transfer-encoding", ""):
            return self.reader.read(int(headers.get("content-length", 0)))
        body = b""
        while size := int(self.reader.readline(), 16):
            body += self.reader.read(size)
            self.reader.readline()
        self.reader.readline()
        return body

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


def over_connections(port: int, count: int, requests: list[Request]) -> list[Answer]:
    """Send them over so many kept-alive connections at once; answers in the order of requests."""
    shares = [list(range(start, len(requests), count)) for start in range(count)]
    answers: list[Answer | None] = [None] * len(requests)

    def work(share: list[int]) -> None:
        connection = Connection(port)
        for scenario in share:
            answers[scenario] = connection.send(requests[scenario])
        connection.close()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, shares))
    return [answer for answer in answers if answer is not None]


def in_process(
    application: Callable[..., Iterable[bytes]], requests: list[Request]
) -> list[Answer]:
    """Call the application one after the other; the seconds are CPU time of this thread."""
    return [_call(application, request) for request in requests]


def _call(application: Callable[..., Iterable[bytes]], request: Request) -> Answer:
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
        started[:] = [status, headers]

    environ = request.environ()
    begin = time.thread_time()
    chunks = application(environ, start_response)
    body = b"".join(chunks)
    if hasattr(chunks, "close"):
        chunks.close()
    spent = time.thread_time() - begin
    headers = {name.lower(): value for name, value in started[1]}
    return Answer(int(started[0].split(" ", 1)[0]), headers, body, spent)
