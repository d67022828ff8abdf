"""Introspection (RFC 7662)."""

from flask import Response

from sso.endpoints import presented_token


def introspect() -> Response:
    """Tell a client about its own token."""
    return presented_token.answer("introspection")
