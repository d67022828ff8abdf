"""Introspection (RFC 7662)."""

from flask import Response

from sso.endpoints import backchannel


def introspect() -> Response:
    """Tell a client about its own token."""
    return backchannel.answer("introspection")
