"""Reverse proxies: whom to believe about the client's address, the scheme and the path.

Each trusted proxy adds one value to `X-Forwarded-For` and its kin, so the value that counts stands
that many places from the right; whatever a client wrote itself stands further to the left.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def init_app(app: Flask, count: int, base_path: str) -> None:
    """Believe so many proxies; none by default."""
    if count:
        whole = _WholePath(app.wsgi_app, base_path)
        app.wsgi_app = ProxyFix(  # type: ignore[method-assign]  # as Flask's manual does
            whole, x_for=count, x_proto=count, x_host=count, x_prefix=count
        )


class _WholePath:
    """Put back the prefix that a proxy cut off and told in `X-Forwarded-Prefix`.

    Our addresses have it, because the issuer has it (SSO_BASE_URL). No other prefix is taken.
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
            rest = environ.get("PATH_INFO", "")
            if not f"{rest}/".startswith(f"{self.base_path}/"):
                environ["PATH_INFO"] = prefix + rest
        return self.application(environ, start_response)
