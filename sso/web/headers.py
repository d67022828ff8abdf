"""Headers of every answer: content sniffing, framing, scripts, referrer, transport, caches."""

from flask import Flask, Response, g

from sso import context

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
    is_https = current_https(app)

    @app.after_request
    def add_headers(response: Response) -> Response:
        headers = response.headers
        headers.add("X-Content-Type-Options", "nosniff")  # nobody else sets it
        headers.setdefault("Referrer-Policy", "no-referrer")
        if is_https:
            headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        headers.setdefault("Cache-Control", "no-store")
        if response.mimetype == "text/html":
            headers["Content-Security-Policy"] = g.get("sso_policy", PAGE_POLICY)
            headers["X-Frame-Options"] = "DENY"
            # Not on redirects, whose text nobody sees: an application that opens us in a popup
            # keeps its hold on it as long as no page of ours was shown there.
            if not 300 <= response.status_code < 400:
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
        return response


def current_https(app: Flask) -> bool:
    with app.app_context():
        return context.settings().is_https
