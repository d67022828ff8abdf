"""The access log: an id, a log line and a measured time for each request."""

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
from sso.web.routing import RoutedRequest

HEADER = "X-Request-ID"
_GIVEN = "HTTP_X_REQUEST_ID"  # the same, as WSGI names it
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,63}")
# People read the id from pages out on the phone: Crockford's base 32, made from pairs of digits.
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

access = logging.getLogger("sso.access")


def init_app(app: Flask) -> None:
    """Log every request. Call this first, so that its `after_request` runs last."""
    app.before_request(_begin)
    app.after_request(_end)


def _begin() -> None:
    environ = request.environ
    g.sso_started = environ.get(concurrency.ARRIVED) or perf_counter()
    header = environ.get(_GIVEN, "")
    g.sso_request_id = header if _ID.fullmatch(header) else make_id()


def make_id() -> str:
    """Return a random id such as `7k3m-v9xq`. It is not a secret."""
    bits = getrandbits(40)
    return (
        f"{_PAIRS[bits >> 30]}{_PAIRS[bits >> 20 & 1023]}-"
        f"{_PAIRS[bits >> 10 & 1023]}{_PAIRS[bits & 1023]}"
    )


def _end(response: Response) -> Response:
    started = g.get("sso_started")
    if started is None:
        return response
    seconds = perf_counter() - started - concurrency.refusal_delay()
    request = routing.this_request()
    status, route = response.status_code, request.route
    response.headers.add(HEADER, g.sso_request_id)
    label = route.label if route else request.endpoint or "unknown"
    method = request.method if request.method in _METHODS else "other"
    counters.request(label, method, status, seconds)
    if not (route and route.quiet and status == 200):
        _log(request, status, method, round(seconds * 1000, 1))
    return response


def _log(request: RoutedRequest, status: int, method: str, milliseconds: float) -> None:
    """Log the rule without path variables and query, which may hold codes and tokens."""
    refused = refusals.flush(status, request.route.name if request.route else None)
    if request.route:
        is_exact = "<" not in request.route.path
        route = request.path if is_exact else refusals.shown_path(request.path)
    elif request.url_rule:
        route = request.url_rule.rule
    else:
        route, refused["path"] = "(unknown address)", refusals.shown_path(request.path)
    access.info(
        "%s %s %s %s ms" + (" %s" if refused else ""),
        method,
        route,
        status,
        milliseconds,
        *([json.dumps(refused)] if refused else ()),
        extra={
            "method": method,
            "route": route,
            "status": status,
            "duration_ms": milliseconds,
            "address": request.remote_addr,
            **refused,
        },
    )
