"""Reverse proxies: how many are trusted for the client's IP address, the scheme and the path.

Each trusted proxy appends one value to `X-Forwarded-For` and similar headers. The value that counts
is at that position from the right; values that a client wrote are further to the left.
"""

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from flask import Flask, Request
from werkzeug.middleware.proxy_fix import ProxyFix

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


logger = logging.getLogger("sso.proxies")

# RFC 5737: IP addresses for documentation, which no real proxy has; `flask doctor` forges them. The
# second one is in headers that gunicorn ignores, and that granian reads as X-Forwarded-For.
FORGED, FORGED_BY_UNDERSCORE = "203.0.113.77", "203.0.113.78"
_BY_DOCTOR = (FORGED, FORGED_BY_UNDERSCORE)
_WARN_EVERY = 3600.0  # seconds between two warnings of a process


def init_app(app: Flask, count: int, base_path: str) -> None:
    """Trust this number of proxies; 0 is none."""
    if count:
        whole = _WholePath(app.wsgi_app, base_path)
        app.wsgi_app = ProxyFix(  # type: ignore[method-assign]  # as Flask's manual does
            whole, x_for=count, x_proto=count, x_host=count, x_prefix=count
        )
    else:
        app.wsgi_app = _Untrusted(app.wsgi_app)  # type: ignore[method-assign]  # as well


class _Untrusted:
    """Log a warning once if there may be a proxy that is not configured."""

    def __init__(self, application: "WSGIApplication") -> None:
        self.application = application
        self.has_warned = False

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        if not self.has_warned and environ.get("HTTP_X_FORWARDED_FOR", FORGED) not in _BY_DOCTOR:
            self.has_warned = True
            logger.warning(
                "a request has X-Forwarded-For, which is not believed: if a proxy of yours sends "
                "it, set SSO_TRUSTED_PROXIES to the number of proxies; until then limits and logs "
                "take all visitors for one, the proxy"
            )
        return self.application(environ, start_response)


class PlainHttp:
    """Log a warning, at most once an hour, about requests that seem to use http."""

    def __init__(self) -> None:
        self._say_again_at = float("-inf")

    def say(self, request: Request, trusted: int) -> None:
        """Log the warning and its remedy. `trusted`: the number of trusted proxies."""
        if (now := time.monotonic()) < self._say_again_at:
            return
        self._say_again_at = now + _WARN_EVERY
        logger.warning(
            "a form came by http, where browsers do not send the cookie, although SSO_BASE_URL is "
            "https: %s",
            _remedy(request.headers.get("X-Forwarded-Proto"), trusted),
        )


def _remedy(scheme: str | None, trusted: int) -> str:
    if scheme is None:
        more = "" if trusted else ", and set SSO_TRUSTED_PROXIES to the number of proxies"
        return (
            "the header X-Forwarded-Proto is missing; if people use https, let the proxy set it "
            f"(nginx: proxy_set_header X-Forwarded-Proto $scheme;){more}; if they use http, "
            "redirect them to https"
        )
    if not trusted:
        return (
            "X-Forwarded-Proto is there and not believed; set SSO_TRUSTED_PROXIES to the number of "
            "proxies"
        )
    return (
        "by X-Forwarded-Proto the proxy was asked by http; let it redirect http to https, and see "
        "that SSO_TRUSTED_PROXIES is the number of proxies"
    )


class _WholePath:
    """Restore the prefix that a proxy removed and passed on in `X-Forwarded-Prefix`; ignore what is
    about its connection.

    Routes include it, because the issuer does (SSO_BASE_URL). Any other prefix is ignored.
    """

    def __init__(self, application: "WSGIApplication", base_path: str) -> None:
        self.application = application
        self.base_path = base_path

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        prefix = environ.get("SCRIPT_NAME", "").rstrip("/")
        environ["SCRIPT_NAME"] = ""
        if prefix and f"{self.base_path}/".startswith(f"{prefix}/"):
            path = environ.get("PATH_INFO", "")
            if not f"{path}/".startswith(f"{self.base_path}/"):
                environ["PATH_INFO"] = prefix + path
        # Caddy asks about a WebSocket with the headers of its handshake (forward auth). Werkzeug
        # would find no route for it; a server may ignore it (RFC 9110 §7.8).
        environ.pop("HTTP_CONNECTION", None)
        return self.application(environ, start_response)
