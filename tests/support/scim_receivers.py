"""Applications that keep accounts of their own: scim2-server in memory, and a hostile one."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from flask import Flask
from scim2_models import ScimProvider
from scim2_server.memory import InMemoryStorage
from scim2_server.testserver.application import BearerTokenApplication
from scim2_server.testserver.cli import ThreadingWSGIServer
from scim2_server.utils import (
    load_default_resource_types,
    load_default_schemas,
    load_default_service_provider_config,
)

from sso import audit
from sso.extensions import db
from sso.jobs import scim_delivery
from sso.models import ScimReceiver, ScimResource
from sso.services import clients, provisioning
from sso.store import provisioning as stored
from tests.support.factories import make_client

TOKEN = "a-token"


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@dataclass
class InMemory:
    """scim2-server with its own storage, and the requests that it got."""

    url: str
    storage: InMemoryStorage
    requests: list[str] = field(default_factory=list)

    @property
    def users(self) -> dict[str, dict[str, Any]]:
        """The accounts by user name."""
        rows = [resource.model_dump() for resource in self.storage.resources]
        return {row["userName"]: row for row in rows if "userName" in row}

    @property
    def group_ids(self) -> dict[str, str]:
        """The ids of groups by name."""
        rows = [resource.model_dump() for resource in self.storage.resources]
        return {row["displayName"]: row["id"] for row in rows if "userName" not in row}

    @property
    def groups(self) -> dict[str, set[str]]:
        """The user names of members by the name of their group."""
        rows = [resource.model_dump() for resource in self.storage.resources]
        names = {row["id"]: row["userName"] for row in rows if "userName" in row}
        return {
            row["displayName"]: {names[member["value"]] for member in row.get("members") or ()}
            for row in rows
            if "userName" not in row
        }


@contextmanager
def in_memory(token: str = TOKEN) -> Iterator[InMemory]:
    provider = ScimProvider.from_discovery(
        load_default_schemas().values(),
        load_default_resource_types().values(),
        config=load_default_service_provider_config(),
    )
    storage = InMemoryStorage()
    application = BearerTokenApplication(storage, provider, bearer_tokens=[token])
    receiver = InMemory("", storage)

    def noting(environ: Any, start: Any) -> Any:
        receiver.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        return application(environ, start)

    server = make_server("127.0.0.1", 0, noting, ThreadingWSGIServer, _Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@dataclass
class Request:
    """What a hostile receiver got."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


Answer = tuple[int, dict[str, str], bytes]


def answer(status: int, body: Any = None, **headers: str) -> Answer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, content


class Hostile:
    """Answers as a test wants."""

    def __init__(self, reply: Callable[[Request], Answer], seconds: float = 0) -> None:
        self.reply, self.seconds = reply, seconds
        self.got: list[Request] = []

    @property
    def lines(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.got]

    @contextmanager
    def listening(self) -> Iterator[str]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                text = self.rfile.read(length)
                is_json = "json" in self.headers.get("Content-Type", "")
                body = json.loads(text) if is_json else text.decode() or None
                request = Request(self.command, self.path, dict(self.headers.items()), body)
                receiver.got.append(request)
                time.sleep(receiver.seconds)
                status, headers, content = receiver.reply(request)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(content)

            do_GET = do_PUT = do_PATCH = do_DELETE = do_POST

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/scim/v2"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)


def connect(app: Flask, url: str, token: str | None = TOKEN, **fields: Any) -> str:
    """Register an application with this SCIM URL; return its client ID."""
    client_id = make_client(app, **{"groups": ["staff"], "scim_url": url, **fields}).client_id
    with app.app_context():
        if token:
            provisioning.set_token(audit.SYSTEM, client_id, token)
        db.session.commit()
    return client_id


def change(app: Flask, client_id: str, **fields: Any) -> None:
    with app.app_context():
        clients.change(audit.SYSTEM, client_id, fields)
        db.session.commit()


def work(app: Flask) -> int:
    """Do what the worker does in a second; return how many people were sent."""
    with app.app_context():
        scim_delivery.note_changes()
        sent = scim_delivery.deliver_due()
        return sent + scim_delivery.deliver_due(is_failing=True)


def receiver_of(app: Flask, client_id: str) -> ScimReceiver:
    with app.app_context():
        receiver = stored.find(client_id)
        assert receiver
        return receiver


def people_of(app: Flask, client_id: str) -> dict[str, ScimResource]:
    """What is noted about the people at a receiver, by name."""
    with app.app_context():
        return {row.name: row for row in stored.resources_of(client_id).values()}
