"""The sample application: a small Flask application of its own that signs people in."""

import secrets
from collections.abc import Callable
from urllib.parse import urlsplit

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuthError
from flask import Flask, abort, redirect, render_template, request, session, url_for
from flask.typing import ResponseReturnValue
from joserfc.errors import JoseError
from requests import ConnectionError, RequestException
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from sso.checkup.relying_party import RelyingParty, Request
from sso.demo import steps
from sso.demo.sign_ins import Memory, SignIn

_MOST_PENDING = 8  # the cookie must not grow without end
_PROBLEMS = {
    "mismatching_state": "This answer belongs to no sign-in begun in this browser.",
    "missing_access_token": "The server gave no access token.",
    "missing_code": "The server gave neither a code nor an error.",
    "missing_id_token": "The server gave no identity token.",
    "missing_token": "The server gave no refresh token.",
    "wrong_issuer": "The answer did not come from the server that was asked.",
    "wrong_subject": "The profile or the new tokens are somebody else's.",
}
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
    """Build the sample application, which signs in at `issuer`. Its callback is at `/callback`."""
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY=secret_key,
        # Cookies do not distinguish ports: the server on another port has other names for its own.
        SESSION_COOKIE_NAME="sample_app",
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_HTTPONLY=True,
    )
    # Keep the exchanges, to show them; send no loopback request to a proxy.
    hooks = {"response": [steps.record]}
    client = RelyingParty(issuer, client_id, client_secret, hooks=hooks, trust_env=False)
    _add_routes(app, client)
    _add_problem_pages(app)

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


def _add_routes(app: Flask, client: RelyingParty) -> None:
    pending: Memory[Request] = Memory(size=1000, lifetime=3600)
    sign_ins: Memory[SignIn] = Memory(size=200, lifetime=8 * 3600)

    def current() -> SignIn | None:
        return sign_ins.get(session.get("sign_in", ""))

    def current_for_form() -> SignIn | None:
        """Return the sign-in, if the form came from one of this application's pages."""
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
        """Send the browser to the server. Its session remembers which requests are its own."""
        asked = client.request(url_for("callback", _external=True))
        pending.add(asked.state, asked)
        session["states"] = [*session.get("states", ()), asked.state][-_MOST_PENDING:]
        return redirect(asked.url)

    @app.get("/callback")
    def callback() -> Response:
        """Check the answer that the browser brought, exchange the code, fetch the profile."""
        state = request.args.get("state", "")
        asked = pending.pop(state) if state in session.get("states", ()) else None
        if asked is None:
            raise OAuthError("mismatching_state")
        token = client.exchange(asked, client.code(asked, request.args))
        identity = client.identity(token, asked.nonce)
        profile = client.profile(token, identity["sub"])

        answer = list(request.args.items(multi=True))
        flow = steps.of_sign_in(asked.url, answer, token, identity, client.metadata)
        sign_ins.pop(session.get("sign_in", ""))
        session["sign_in"] = key = secrets.token_urlsafe(32)
        sign_ins.add(key, SignIn(profile, identity["sub"], identity.get("sid"), token, flow))
        return redirect(url_for("home"))

    @app.post("/refresh")
    def refresh() -> Response:
        sign_in = current_for_form()
        if sign_in is None:
            return redirect(url_for("home"))
        with sign_in.lock:  # a refresh token is used once
            token = client.refresh(sign_in.token)
            identity = client.identity(token) if "id_token" in token else None
            if identity and identity["sub"] != sign_in.subject:  # OIDC Core §12.2
                raise OAuthError("wrong_subject")
            sign_in.refreshes = steps.of_refresh(token, identity, client.metadata)
            sign_in.token = {**sign_in.token, **token}
        return redirect(url_for("home", _anchor="refreshed"))

    @app.post("/logout")
    def logout() -> Response:
        sign_in = current_for_form()
        sign_ins.pop(session.get("sign_in", ""))
        session.clear()
        if sign_in and "everywhere" in request.form:
            back = url_for("home", _external=True)
            return redirect(client.end_session_url(sign_in.token, back), 303)
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
        sign_ins.discard(lambda entry: entry.sid == sid if sid else entry.subject == sub)
        return "", 200


def _add_problem_pages(app: Flask) -> None:
    def page(code: str, description: str, status: int) -> ResponseReturnValue:
        return render_template(
            "sample_problem.html", code=code, description=description, parts=steps.of_failure()
        ), status

    def refused(error: AuthlibBaseError | JoseError) -> ResponseReturnValue:
        code = error.error or "error"
        return page(code, error.description or _PROBLEMS.get(code, ""), 400)

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
