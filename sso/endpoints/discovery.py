"""Metadata, at both well-known addresses (OIDC Discovery §4, RFC 8414 §3)."""

import json

from flask import Response, current_app

from sso import context
from sso.oauth import metadata

MAX_AGE = 3600


def discovery() -> Response:
    """The document, made once per process."""
    body = current_app.extensions.get("sso.metadata")
    if body is None:
        body = json.dumps(metadata.document(context.settings())).encode()
        current_app.extensions["sso.metadata"] = body
    response = Response(body, mimetype="application/json")
    response.headers["Cache-Control"] = f"public, max-age={MAX_AGE}"
    return response
