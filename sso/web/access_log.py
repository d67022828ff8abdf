"""An id, a line in the log and a measured time for each request."""

import json
import logging
import re
from random import getrandbits
from time import perf_counter

from flask import Flask, Response, g, request

from sso.observability import counters
from sso.process import concurrency
from sso.ratelimit import refusals
from sso.web import routing
from sso.web.routing import Route

HEADER = "X-Request-ID"
_GIVEN = "HTTP_X_REQUEST_ID"  # the same, as WSGI names it
_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})

access = logging.getLogger("sso.access")


def init_app(app: Flask) -> None:
    """Watch every request. Call it first: its end is then the last."""
    app.before_request(_begin)
    app.after_request(_end)


def _begin() -> None:
    g.sso_started = request.environ.get(concurrency.ARRIVED) or perf_counter()
    given = request.environ.get(_GIVEN, "")
    g.sso_request_id = given if _ID.fullmatch(given) else f"{getrandbits(64):016x}"


def _end(response: Response) -> Response:
    started = g.get("sso_started")
    if started is None:
        return response
    seconds = perf_counter() - started - concurrency.refusal_delay()
    status, route = response.status_code, routing.current()
    response.headers.add(HEADER, g.sso_request_id)
    label = route.label if route else request.endpoint or "unknown"
    method = request.method if request.method in _METHODS else "other"
    counters.request(label, method, status, seconds)
    if not (route and route.quiet and status == 200):
        _log(response, route, method, round(seconds * 1000, 1))
    return response


def _log(response: Response, known: Route | None, method: str, milliseconds: float) -> None:
    """The rule instead of the path, and no query: codes, tokens and signed requests stand there."""
    told = refusals.settle()
    if known:
        route = request.path
    elif request.url_rule:
        route = request.url_rule.rule
    else:
        route, told["path"] = "(unknown address)", refusals.shown_path(request.path)
    access.info(
        "%s %s %s %s ms" + (" %s" if told else ""),
        method,
        route,
        response.status_code,
        milliseconds,
        *([json.dumps(told)] if told else ()),
        extra={
            "method": method,
            "route": route,
            "status": response.status_code,
            "duration_ms": milliseconds,
            "address": request.remote_addr,
            **told,
        },
    )
