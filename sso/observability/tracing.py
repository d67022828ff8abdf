"""Spans for OpenTelemetry: with the extra `tracing`, if OpenTelemetry's variables name a collector.

A span has method, route and status, never the URL, which may have codes and signed requests.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, g, request
from sqlalchemy import Engine, ExceptionContext, event
from sqlalchemy.exc import SQLAlchemyError

from sso.extensions import db

if TYPE_CHECKING:  # an extra
    from opentelemetry.trace import Span, Tracer

logger = logging.getLogger("sso.tracing")

Observer = Callable[[Engine, str, Any], AbstractContextManager[None]]
# Called with each statement that has no SQLAlchemy events (see `store.prepared`).
observers: list[Observer] = []

_COLLECTOR = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})


def init_app(app: Flask) -> None:
    """Trace requests and their statements, if a collector is named."""
    if not any(os.environ.get(name) for name in _COLLECTOR):
        return
    try:
        tracer = _tracer()
    except ImportError:
        logger.error("nothing is sent to the trace collector; run: pip install 'sso[tracing]'")
        return
    _watch_requests(app, tracer)
    with app.app_context():
        _watch_statements(db.engine, tracer)


def _tracer() -> "Tracer":
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    named = Resource.create() if os.environ.get("OTEL_SERVICE_NAME") else None
    provider = TracerProvider(resource=named or Resource.create({"service.name": "sso"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return trace.get_tracer("sso", tracer_provider=provider)


def _watch_requests(app: Flask, tracer: "Tracer") -> None:
    from opentelemetry import context, propagate, trace

    @app.before_request
    def begin() -> None:
        rule = request.url_rule
        method = request.method if request.method in _METHODS else "_OTHER"
        span = tracer.start_span(
            f"{method} {rule.rule}" if rule else method,
            context=propagate.extract({n.lower(): v for n, v in request.headers.items()}),
            kind=trace.SpanKind.SERVER,
            attributes={
                "http.request.method": method,
                "http.route": rule.rule if rule else "",
                "sso.request_id": g.get("sso_request_id", ""),
            },
        )
        g.sso_span = span, context.attach(trace.set_span_in_context(span))

    @app.after_request
    def finish(response: Response) -> Response:
        if "sso_span" in g:
            span, _ = g.sso_span
            span.set_attribute("http.response.status_code", response.status_code)
            if response.status_code >= 500:
                span.set_status(trace.StatusCode.ERROR)
        return response

    @app.teardown_request
    def end(_: BaseException | None) -> None:
        if "sso_span" in g:
            span, token = g.pop("sso_span")
            context.detach(token)
            span.end()


def _watch_statements(engine: Engine, tracer: "Tracer") -> None:
    """Add a span for each statement: its text with placeholders, never their values."""
    from opentelemetry import trace

    def span_of(statement: str) -> "Span":
        return tracer.start_span(
            statement.split(None, 1)[0],
            kind=trace.SpanKind.CLIENT,
            attributes={"db.system.name": engine.dialect.name, "db.query.text": statement},
        )

    @contextmanager
    def observe(_engine: Engine, statement: str, _parameters: Any) -> Iterator[None]:
        span = span_of(statement)
        try:
            yield
        except SQLAlchemyError:
            span.set_status(trace.StatusCode.ERROR)
            raise
        finally:
            span.end()

    observers.append(observe)

    @event.listens_for(engine, "before_cursor_execute")
    def begin(_c: Any, _cursor: Any, statement: str, _v: Any, execution: Any, *_: Any) -> None:
        execution.sso_span = span_of(statement)

    @event.listens_for(engine, "after_cursor_execute")
    def end(_c: Any, _cursor: Any, _s: str, _v: Any, execution: Any, *_: Any) -> None:
        execution.sso_span.end()

    @event.listens_for(engine, "handle_error")
    def fail(context: ExceptionContext) -> None:
        if span := getattr(context.execution_context, "sso_span", None):
            span.set_status(trace.StatusCode.ERROR)
            span.end()
