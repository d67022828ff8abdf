"""Spans of a real gunicorn with two workers, at a collector that speaks OTLP."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.processes import Server, free_port, wait_for

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Collector:
    """Keeps every span, and the bytes that it came in."""

    def __init__(self) -> None:
        self.raw = b""
        self.spans: list[Any] = []
        self.services: set[str] = set()

    def take(self, body: bytes) -> None:
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.services.add(named["service.name"])
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value or "" for one in span.attributes}


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kept.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield kept, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_and_statements(collector: tuple[Collector, str], tmp_path: Path) -> None:
    kept, address = collector
    environ: dict[str, Any] = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": address,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    with Server(tmp_path, **environ).running() as server:
        kept.spans.clear()
        asked = f"{server.base_url}/oauth2/authorize"
        parent = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "X-Request-ID": "request-7"}
        query = {"client_id": "nobody", "state": "do-not-tell"}
        for _ in range(8):  # of both workers
            assert requests.get(asked, query, headers=parent, timeout=10).status_code == 400
        name = "GET /api/auth/oauth2/authorize"
        wait_for(lambda: len(kept.named(name)) == 8, "the spans")
    assert kept.services == {"sso"}
    for span in kept.named(name):
        assert span.trace_id.hex() == TRACE
        found = attributes(span)
        assert found["http.response.status_code"] == 400
        assert found["http.route"] == "/api/auth/oauth2/authorize"
        assert found["sso.request_id"] == "request-7"
        below = [one for one in kept.spans if one.parent_span_id == span.span_id]
        assert any("SELECT" in one.name for one in below), [s.name for s in kept.spans]
    for secret in (b"do-not-tell", b"nobody"):
        assert secret not in kept.raw


def test_without_a_collector_nothing_is_loaded(tmp_path: Path) -> None:
    server = Server(tmp_path)
    program = "import sys, wsgi; sys.exit('opentelemetry' in sys.modules)"
    assert server.python("-c", program).returncode == 0
