"""Alive, and able to serve."""

from flask import Response, jsonify

from sso import context
from sso.database import readiness


def healthz() -> Response:
    """The process answers."""
    return jsonify(status="ok")


def readyz() -> Response:
    """Database reachable, schema not too old, a signing key active; 503 with the reason if not."""
    problem = readiness.problem(context.key_ring())
    if problem is None:
        return jsonify(status="ready")
    response = jsonify(status="unavailable", reason=problem)
    response.status_code = 503
    response.headers["Retry-After"] = "5"
    return response
