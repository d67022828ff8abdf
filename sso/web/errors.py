"""Responses to errors: pages and JSON, and the handlers of errors that no view handles.

Errors are redirected only by `oauth.response`, because the URL must be verified first (RFC 9700
§4.11).
"""

import json
import logging
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import Flask, Response, current_app, g, render_template, request
from flask_babel import gettext
from flask_wtf.csrf import CSRFError
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.exceptions import HTTPException, TooManyRequests

from sso import context, database
from sso.crypto import keys, passwords
from sso.database import postgresql
from sso.i18n import N_
from sso.process import concurrency
from sso.ratelimit import limiting, refusals
from sso.web import proxies, routing

logger = logging.getLogger("sso.errors")


def page(
    message: str,
    *,
    status: int = 400,
    title: str | None = None,
    hint: str | None = None,
    error: str | None = None,
    detail: str | None = None,
    client_name: str | None = None,
    link: tuple[str, str] | None = None,
    is_noted: bool = True,
) -> Response:
    """Return an error page. It shows the request's ID, for `flask explain`.

    `detail`: the fault of an application, as an English sentence for its developers; `message` then
    says what it means for the person. Without a `hint`, the page says that trying again will not
    help. `link`: the text and the URL of a link, if there is something to try.
    """
    title = title or gettext("This request could not be processed")
    if error and detail:
        refusals.record_answer(error, detail)
    if is_noted:
        refusals.record(None, budget=None, facts={"page": title})
    report(detail or title, status, error)
    body = render_template(
        "error.html",
        title=title,
        message=message,
        hint=hint,
        error=error,
        detail=detail,
        client_name=client_name,
        link=link,
        home_url=f"{context.settings().base_url}/account",
    )
    return Response(body, status=status, mimetype="text/html")


def report(text: str, status: int, error: str | None) -> None:
    """Log the error of a page."""
    path = refusals.shown_path(request.path)
    logger.info("error page %s: %s %s %s: %s", error_id(), status, path, error or "-", text)


def error_id() -> str:
    """Return the id of the request, which error pages show and the log has."""
    request_id: str = g.sso_request_id
    return request_id


def support_url() -> str | None:
    """Return the URL for help; a mailto: URL gets the error id as its subject."""
    url = context.branding().support_url
    if url and url.startswith("mailto:") and "?" not in url:
        return f"{url}?subject={quote(gettext('Error ID'))}%20{error_id()}"
    return url


def as_json(
    error: str,
    description: str,
    status: int,
    headers: Mapping[str, str | list[str]] | None = None,
    **more: str,
) -> Response:
    """Return an error as JSON (RFC 6749 §5.2), with additional members."""
    refusals.record_answer(error, description)
    body: dict[str, Any] = {"error": error, "error_description": description, **more}
    media_type = "application/json"
    if shape := g.get("sso_error_shape"):  # of another protocol
        make, media_type = shape
        body = make(status, description)
    response = Response(json.dumps(body), status=status, mimetype=media_type)
    response.headers.update({"Cache-Control": "no-store", "Pragma": "no-cache", **(headers or {})})
    return response


def from_oauth(error: OAuth2Error) -> Response:
    """Return a protocol error as JSON, with Authlib's headers."""
    headers = {name: value for name, value in error.get_headers() if name != "Content-Type"}
    description = error.get_error_description() or "The request is not valid."
    return as_json(error.error, description, error.status_code, headers)


def init_app(app: Flask) -> None:
    """Register the handlers of errors that no view handles."""
    app.jinja_env.globals.update(error_id=error_id, support_url=support_url)
    app.register_error_handler(CSRFError, _form_expired)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(TooManyRequests, _too_many)
    app.register_error_handler(passwords.Busy, _busy)
    app.register_error_handler(Exception, _unexpected)


def _form_expired(error: CSRFError) -> Response:
    refusals.record_csrf(error.description or "")
    if current_app.config["SESSION_COOKIE_NAME"] not in request.cookies:
        settings = context.settings()
        if settings.is_https and not request.is_secure:
            _plain_http.say(request, settings.trusted_proxies)
            url = settings.base_url.removesuffix(settings.base_path) + _here()
            return page(
                gettext(
                    "This page was opened without https, so your browser did not send its cookie."
                ),
                title=gettext("Please open this page with https"),
                hint=gettext(
                    "Continue at %(address)s. If you are already there, allow cookies for this "
                    "site.",
                    address=settings.base_url,
                ),
                link=(gettext("Open with https"), url),
            )
        return page(
            gettext("This page needs a cookie that your browser did not send."),
            title=gettext("Please allow cookies"),
            hint=gettext("Allow cookies for this site, then try again."),
            link=(gettext("Try again"), _here()),
        )
    # The page was open while another tab signed in or out: show it again.
    return Response(status=303, headers={"Location": _here()})


def _here() -> str:
    """Return the path and the query of this request."""
    return request.full_path.rstrip("?")


_plain_http = proxies.PlainHttp()


_WORDS: dict[int, tuple[str | None, str]] = {
    404: (N_("Page not found"), N_("There is no page at this address.")),
    413: (None, N_("The request is too long.")),
}


# Metadata that clients request below /.well-known/, some of them without the issuer's path.
_OF_ISSUER = re.compile(
    r"/\.well-known/(openid-configuration|oauth-authorization-server|webfinger|jwks\.json)(?=/|\Z)"
)


def _not_here() -> Response:
    """Return 404 for metadata at a wrong URL, with the right one, readable by all origins."""
    issuer, base_url = context.settings().issuer, context.settings().base_url
    return as_json(
        "invalid_request",
        f"The issuer of this server is {issuer}: give clients exactly this URL.",
        404,
        {"Access-Control-Allow-Origin": "*"},
        issuer=issuer,
        openid_configuration=f"{base_url}/.well-known/openid-configuration",
    )


def _http(error: HTTPException) -> Response:
    status = error.code or 500
    description = error.description or error.name
    intended_path = routing.intended_path() if status == 404 else None
    if intended_path:
        facts = {"path": refusals.shown_path(request.path), "meant": intended_path}
        refusals.record(None, budget=None, facts=facts)
    if status == 404 and _OF_ISSUER.search(request.path):
        response = _not_here()
    elif routing.is_protocol():
        code = "server_error" if status >= 500 else "invalid_request"
        response = as_json(code, description.splitlines()[0][:200], status)
    else:
        title, text = _WORDS.get(status, (None, N_("The server does not support this request.")))
        response = page(
            gettext(text),
            status=status,
            title=gettext(title) if title else None,
            # Unknown paths come mostly from scanners.
            is_noted=status != 404 or intended_path is not None,
        )
    for name, value in error.get_headers():
        if name.lower() not in ("content-type", "content-length"):
            response.headers[name] = value
    return response


def _too_many(error: TooManyRequests) -> Response:
    database.end_session()
    concurrency.delay_refusal()
    seconds = int(str(error.retry_after or 60))
    if routing.is_protocol():
        message = error.description or "Too many attempts."
        response = as_json("temporarily_unavailable", message, 429)
    else:
        title, link = gettext("Please wait"), (gettext("Try again"), _here())
        response = page(limiting.waiting_time(seconds), status=429, title=title, link=link)
    response.headers["Retry-After"] = str(seconds)
    return response


def _busy(_: passwords.Busy) -> Response:
    database.end_session()
    concurrency.delay_refusal()
    if routing.is_protocol():
        response = as_json("temporarily_unavailable", "Too many passwords are being set.", 503)
        response.headers["Retry-After"] = "5"
        return response
    response = page(
        gettext("Too many people are signing in right now."),
        status=503,
        title=gettext("Please try again"),
        hint=gettext("Wait a few seconds, then try again."),
        link=(gettext("Try again"), _here()),
    )
    response.headers["Retry-After"] = "5"
    return response


def _unexpected(error: Exception) -> Response:
    """Return 503 for temporary errors and missing keys, else 500, and log the exception."""
    reason = None
    if isinstance(error, SQLAlchemyError) and (passing := postgresql.transient_reason(error)):
        reason = f"database: {passing}"
    elif isinstance(error, keys.KeyUnavailable):
        reason = f"nothing can be signed: {error}"
    if reason:
        logger.error("%s", reason)
        status, code = 503, "temporarily_unavailable"
        text = N_("The service is temporarily unavailable.")
    else:
        logger.error("unexpected error at %s", request.path, exc_info=error)
        status, code, text = 500, "server_error", N_("Something went wrong on the server.")
    database.end_session()
    if routing.is_protocol():
        response = as_json(code, text, status)
    else:
        is_passing = status == 503
        response = page(
            gettext(text),
            status=status,
            title=gettext("Sorry, this did not work"),
            hint=gettext("Wait a few seconds, then try again.") if is_passing else None,
            link=(gettext("Try again"), _here()) if is_passing else None,
            error=code,
        )
    if status == 503:
        response.headers["Retry-After"] = "5"
    return response
