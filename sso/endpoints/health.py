"""Alive, and able to serve."""

from flask import Response, jsonify

from sso import context
from sso.database import readiness


def healthz() -> Response:
    """Liveness: 200 while the process answers."""
    return jsonify(status="ok")


def readyz() -> Response:
    """Readiness: 503 with the reason if database, schema or signing keys cannot be used."""
    problem = readiness.problem(context.key_ring())
    if problem is None:
        return jsonify(status="ready")
    response = jsonify(status="unavailable", reason=problem)
    response.status_code = 503
    response.headers["Retry-After"] = "5"
    return response
