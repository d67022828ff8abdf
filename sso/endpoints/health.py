"""Alive, and able to serve."""

import json

from flask import Response

from sso.database import readiness


def healthz() -> Response:
    """The process answers."""
    return _answer(200, {"status": "ok"})


def readyz() -> Response:
    """Database reachable, schema not too old, a signing key active; 503 with the reason if not."""
    problem = readiness.problem()
    if problem:
        response = _answer(503, {"status": "unavailable", "reason": problem})
        response.headers["Retry-After"] = "5"
        return response
    return _answer(200, {"status": "ready"})


def _answer(status: int, body: dict[str, str]) -> Response:
    return Response(json.dumps(body), status=status, mimetype="application/json")
