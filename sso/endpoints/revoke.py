"""Revocation (RFC 7009)."""

from flask import Response

from sso.endpoints import presented_token


def revoke() -> Response:
    """End an access token, or with a refresh token the whole grant."""
    return presented_token.answer("revocation")
