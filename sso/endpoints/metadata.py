"""What clients read about this server: its metadata and its public keys."""

import json

from flask import current_app, request
from werkzeug.wrappers import Response

from sso import context
from sso.oauth import metadata


def discovery() -> Response:
    """Metadata of the server (OIDC Discovery §4, RFC 8414 §3)."""
    body = current_app.extensions.get("sso.metadata")
    if body is None:
        body = json.dumps(metadata.document(context.settings())).encode()
        current_app.extensions["sso.metadata"] = body
    return Response(body, mimetype="application/json")


def jwks() -> Response:
    """Key set: the public signing keys (RFC 7517)."""
    response = Response(context.key_ring().jwks(), mimetype="application/json")
    response.add_etag()
    return response.make_conditional(request)
