"""Headers of every response: sniffing, framing, scripts, referrer, transport, caches, CORS."""

from flask import Flask, Request, Response, g
from sqlalchemy.exc import SQLAlchemyError

from sso import database
from sso.config.settings import Settings
from sso.i18n import languages
from sso.store import clients
from sso.store.clients import RegisteredClient
from sso.web import routing

# No form-action: browsers apply it to the redirects after a form, which may lead to any client's
# URL. Every form carries a CSRF token.
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; {script}"
    "base-uri 'none'; frame-ancestors 'none'"
)
_EXPOSED = "WWW-Authenticate, DPoP-Nonce, Retry-After, X-Request-ID"
PAGE_POLICY = _POLICY.format(script="")
SCRIPT_POLICY = _POLICY.format(script="script-src 'self'; ")
_FRAMES_POLICY = _POLICY.format(script="script-src 'self'; frame-src 'self'; ")
# What is in it was sent by the visitor, so it is in the page itself.
_FRAMED_POLICY = (
    "default-src 'none'; style-src data:; img-src 'self' data:; base-uri 'none'; "
    "frame-ancestors 'self'"
)


def allow_own_script() -> None:
    """Allow this response to run the server's own script files."""
    g.sso_policy = SCRIPT_POLICY


def allow_own_frames() -> None:
    """Allow this response to run the server's own script files, and to have its pages in frames."""
    g.sso_policy = _FRAMES_POLICY


def allow_framing() -> None:
    """Allow the server's own pages to show this response in a frame. It runs no scripts."""
    g.sso_policy, g.sso_frames = _FRAMED_POLICY, "SAMEORIGIN"


def allow_origins_of(client: RegisteredClient) -> None:
    """Allow only the origins of this client to read the response."""
    g.sso_client = client


def init_app(app: Flask) -> None:
    """Set the headers on every response."""
    settings: Settings = app.extensions["sso.settings"]

    @app.after_request
    def add_headers(response: Response) -> Response:
        request = routing.this_request()
        headers, route = response.headers, request.route
        headers.add("X-Content-Type-Options", "nosniff")
        headers.setdefault("Referrer-Policy", "no-referrer")
        if settings.is_https:
            headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        if (
            route
            and route.max_age
            and request.method in ("GET", "HEAD")
            and response.status_code < 400
        ):
            headers["Cache-Control"] = f"public, max-age={route.max_age}"
        else:
            headers.setdefault("Cache-Control", "no-store")
        if route and route.cors:
            _allow_origin(request, response, route.cors)
        if response.mimetype == "text/html":
            headers["Content-Security-Policy"] = g.get("sso_policy", PAGE_POLICY)
            headers["X-Frame-Options"] = g.get("sso_frames", "DENY")
            # Not on redirects: an application that opens the sign-in in a popup keeps its
            # reference to the window until a page of this server is shown there.
            if not 300 <= response.status_code < 400:
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers["Content-Language"] = languages.language()
        return response


def _allow_origin(request: Request, response: Response, cors: str) -> None:
    """Set the CORS headers, without credentials: these routes read no cookies."""
    headers, origin = response.headers, "*"
    if cors == routing.REGISTERED_ORIGINS:
        headers.add("Vary", "Origin")
        origin = request.headers.get("Origin", "")
        if not origin or not _is_registered(origin):
            return
    headers.add("Access-Control-Allow-Origin", origin)
    headers.add("Access-Control-Expose-Headers", _EXPOSED)
    if request.method == "OPTIONS":
        headers["Access-Control-Allow-Methods"] = ", ".join(sorted(response.allow))
        headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type, DPoP"
        headers["Access-Control-Max-Age"] = "3600"


def _is_registered(origin: str) -> bool:
    """Return whether it is an origin of the client, or of any public client if none is known.

    Preflights and many errors name no client.
    """
    if client := g.get("sso_client"):
        return bool(client.has_origin(origin))
    try:
        with database.connection() as connection:
            return clients.is_origin_of_any(connection, origin)
    except SQLAlchemyError:
        return False  # the answer says what is wrong with the database
