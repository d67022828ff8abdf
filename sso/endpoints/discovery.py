"""Metadata, at both well-known addresses (OIDC Discovery §4, RFC 8414 §3)."""

import json

from flask import Response, current_app

from sso import context
from sso.oauth import metadata


def discovery() -> Response:
    """The document, made once per process."""
    body = current_app.extensions.get("sso.metadata")
    if body is None:
        body = json.dumps(metadata.document(context.settings())).encode()
        current_app.extensions["sso.metadata"] = body
    return Response(body, mimetype="application/json")
