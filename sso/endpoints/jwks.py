"""The public key set (RFC 7517)."""

from flask import request
from werkzeug.wrappers import Response

from sso import context


def jwks() -> Response:
    """Every published key; cached no longer than a next key is published before its use."""
    response = Response(context.key_ring().jwks(), mimetype="application/json")
    response.add_etag()
    return response.make_conditional(request)
