"""Cross-origin requests: open for what carries its own proof, closed for pages.

No credentials are allowed: the browser's cookies are never sent, and these endpoints read none.
"""

from flask import Flask, Response

from sso import context

_OPEN = frozenset(
    {"sso.discovery", "root.metadata", "sso.jwks", "sso.token", "sso.userinfo", "sso.revoke"}
)


def init_app(app: Flask) -> None:
    """Answer cross-origin requests at the open endpoints."""

    @app.after_request
    def add_headers(response: Response) -> Response:
        asked = context.request()
        if asked.endpoint not in _OPEN:
            return response
        headers = response.headers
        headers.add("Access-Control-Allow-Origin", "*")
        headers.add("Access-Control-Expose-Headers", "WWW-Authenticate, Retry-After")
        if asked.method == "OPTIONS":
            headers["Access-Control-Allow-Methods"] = ", ".join(sorted(response.allow))
            headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type"
            headers["Access-Control-Max-Age"] = "3600"
        return response
