"""Headers of every answer: sniffing, framing, scripts, referrer, transport, caches, CORS."""

from flask import Flask, Request, Response, g

from sso.config.settings import Settings
from sso.i18n import languages
from sso.web import routing

# No form-action: browsers apply it to the redirects that follow a form, and the way back to the
# client's own address, wherever that leads, must stay open. Every form carries a CSRF token.
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; {script}"
    "base-uri 'none'; frame-ancestors 'none'"
)
PAGE_POLICY = _POLICY.format(script="")
SCRIPT_POLICY = _POLICY.format(script="script-src 'self'; ")


def allow_own_script() -> None:
    """Let this answer run a script file of ours (the form_post page posts itself)."""
    g.sso_policy = SCRIPT_POLICY


def init_app(app: Flask) -> None:
    """Put the headers on every answer."""
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
            _open_to_other_origins(request, response)
        if response.mimetype == "text/html":
            headers["Content-Security-Policy"] = g.get("sso_policy", PAGE_POLICY)
            headers["X-Frame-Options"] = "DENY"
            # Not on redirects, whose text nobody reads: an application that opens us in a popup
            # keeps its hold on it as long as no page of ours was shown there.
            if not 300 <= response.status_code < 400:
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers["Content-Language"] = languages.language()
        return response


def _open_to_other_origins(request: Request, response: Response) -> None:
    """No credentials: browsers never send their cookies, which these routes do not read."""
    headers = response.headers
    headers.add("Access-Control-Allow-Origin", "*")
    headers.add("Access-Control-Expose-Headers", "WWW-Authenticate, Retry-After")
    if request.method == "OPTIONS":
        headers["Access-Control-Allow-Methods"] = ", ".join(sorted(response.allow))
        headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type"
        headers["Access-Control-Max-Age"] = "3600"
