"""Each request is seen once: an id, a line on the log, and its time counted."""

import json
import logging
import re
from random import getrandbits
from time import perf_counter

from flask import Flask, Request, Response, g, request
from flask.globals import request_ctx
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import RoutingException, Rule

from sso import context
from sso.observability import counters
from sso.process import concurrency
from sso.ratelimit import refusals

HEADER = "X-Request-ID"
_GIVEN = "HTTP_X_REQUEST_ID"  # the same, as WSGI names it
_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
# Asked every few seconds by those who watch.
_QUIET = frozenset({"root.healthz", "root.readyz"})

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
    seconds, request = perf_counter() - started - concurrency.sat_out(), context.request()
    status = response.status_code
    response.headers.add(HEADER, g.sso_request_id)
    rule = request.url_rule or _rule_of_another_method(request)
    endpoint = rule.endpoint if rule else "unknown"
    method = request.method if request.method in _METHODS else "other"
    counters.request(endpoint, method, status, seconds)
    if not (endpoint in _QUIET and status == 200):
        # The rule instead of the address, and no query: codes, tokens and sealed requests stand
        # there.
        route, milliseconds = rule.rule if rule else "(unknown address)", round(seconds * 1000, 1)
        told = refusals.settle()
        if not rule:
            told["path"] = refusals.shown_path(request.path)
        if access.isEnabledFor(logging.INFO):
            # Not by `info`, which would look for the file and the line of its caller.
            record = access.makeRecord(
                access.name, logging.INFO, "", 0, "%s %s %s %s ms" + (" %s" if told else ""),
                (method, route, status, milliseconds, *([json.dumps(told)] if told else ())), None,
                extra={
                    "method": method,
                    "route": route,
                    "status": status,
                    "duration_ms": milliseconds,
                    "address": request.remote_addr,
                    **told,
                },
            )  # fmt: skip
            access.handle(record)
    return response


def _rule_of_another_method(request: Request) -> Rule | None:
    """The rule of an address that is known, but not with the method of the request."""
    fault, adapter = request.routing_exception, request_ctx.url_adapter
    if not isinstance(fault, MethodNotAllowed) or not fault.valid_methods or adapter is None:
        return None
    try:
        found = adapter.match(method=next(iter(fault.valid_methods)), return_rule=True)
    except (HTTPException, RoutingException):  # the address of a redirect
        return None
    return found[0]
