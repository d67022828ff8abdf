"""The sample application: a small Flask application of its own that signs people in."""

import secrets
from collections.abc import Callable
from urllib.parse import urlsplit

from authlib.common.errors import AuthlibBaseError
from flask import Flask, abort, redirect, render_template, request, session, url_for
from flask.typing import ResponseReturnValue
from joserfc.errors import JoseError
from requests import ConnectionError, RequestException
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from .client import BoundedMemory, SampleClient, SignIn

_LIFETIME = 8 * 3600
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; "
    "form-action 'self' {server}; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


def create_sample_application(
    *, issuer: str, client_id: str, client_secret: str, secret_key: str
) -> Flask:
    """The sample application, signing in at `issuer`; its callback is at `/callback`."""
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY=secret_key,
        # Cookies do not distinguish ports: the server on another port has other names for its own.
        SESSION_COOKIE_NAME="sample_app",
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_HTTPONLY=True,
    )
    client = SampleClient(app, issuer=issuer, client_id=client_id, client_secret=client_secret)
    _add_routes(app, client, BoundedMemory(size=200))
    _add_problem_pages(app, client)

    server = urlsplit(issuer)
    policy = _POLICY.format(server=f"{server.scheme}://{server.netloc}")

    @app.context_processor
    def _everywhere() -> dict[str, str]:
        return {"issuer": issuer}

    @app.after_request
    def _headers(response: Response) -> Response:
        response.headers.update(_HEADERS)
        # Signing out everywhere is a form that leads to the server and back.
        response.headers["Content-Security-Policy"] = policy
        if request.endpoint != "static":
            response.headers["Cache-Control"] = "no-store"
        return response

    return app


def _add_routes(app: Flask, client: SampleClient, sign_ins: BoundedMemory[SignIn]) -> None:
    def current() -> SignIn | None:
        return sign_ins.get(session.get("sign_in", ""))

    def current_for_form() -> SignIn | None:
        """The sign-in, after a check that the form came from one of this application's pages."""
        sign_in = current()
        if sign_in and not secrets.compare_digest(
            request.form.get("csrf", "").encode(), sign_in.csrf.encode()
        ):
            abort(400, "The form did not come from this application's page.")
        return sign_in

    @app.get("/")
    def home() -> str:
        sign_in = current()
        if sign_in is None:
            return render_template("sample_welcome.html")
        return render_template("sample_result.html", sign_in=sign_in)

    @app.get("/login")
    def login() -> Response:
        return client.begin(url_for("callback", _external=True))

    @app.get("/callback")
    def callback() -> Response:
        sign_in, key = client.complete(), secrets.token_urlsafe(32)
        sign_ins.delete(session.get("sign_in", ""))
        sign_ins.set(key, sign_in, _LIFETIME)
        session["sign_in"] = key
        return redirect(url_for("home"))

    @app.post("/refresh")
    def refresh() -> Response:
        sign_in = current_for_form()
        if sign_in:
            client.refresh(sign_in)
        return redirect(url_for("home", _anchor="refreshed" if sign_in else None))

    @app.post("/logout")
    def logout() -> Response:
        sign_in = current_for_form()
        sign_ins.delete(session.get("sign_in", ""))
        session.clear()
        if sign_in and "everywhere" in request.form:
            back = url_for("home", _external=True)
            return redirect(client.end_session_url(sign_in, back), 303)
        return redirect(url_for("signed_out"), 303)

    @app.get("/signed-out")
    def signed_out() -> str:
        return render_template("sample_signed_out.html")

    @app.post("/backchannel-logout")
    def backchannel_logout() -> ResponseReturnValue:
        """The server reports that a session ended (Back-Channel Logout 1.0 §2.5)."""
        try:
            claims = client.verify_logout_token(request.form.get("logout_token", ""))
        except (JoseError, ValueError) as error:
            return {"error": "invalid_request", "error_description": str(error)}, 400
        sid, sub = claims.get("sid"), claims.get("sub")
        sign_ins.discard(lambda one: one.sid == sid if sid else one.subject == sub)
        return "", 200


def _add_problem_pages(app: Flask, client: SampleClient) -> None:
    def page(code: str, description: str, status: int) -> ResponseReturnValue:
        parts = client.last_exchange()
        return render_template(
            "sample_problem.html", code=code, description=description, parts=parts
        ), status

    def refused(error: AuthlibBaseError | JoseError) -> ResponseReturnValue:
        return page(error.error or "error", error.description or "", 400)

    def unreachable(error: Exception) -> ResponseReturnValue:
        app.logger.warning("No usable answer from the server: %s", error)
        if isinstance(error, ConnectionError):
            return page("no_answer", "The sign-in server does not answer. Is it running?", 502)
        return page("no_answer", f"No usable answer from the server: {error}", 502)

    def http(error: HTTPException) -> ResponseReturnValue:
        return page(error.name, error.description or "", error.code or 500)

    handlers: dict[type[Exception], Callable[..., ResponseReturnValue]] = {
        AuthlibBaseError: refused,
        JoseError: refused,
        RequestException: unreachable,
        ValueError: unreachable,  # raised by Authlib for an answer that is not JSON
        HTTPException: http,
    }
    for kind, handler in handlers.items():
        app.register_error_handler(kind, handler)
