"""The three answers to an error: a page; a redirect to a proven URL; JSON.

A redirect belongs to one place alone, `oauth.response`, because the URL
must be proven first (RFC 9700 §4.11).
"""

import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import Response, g, render_template, request
from flask_babel import gettext

from sso import context
from sso.ratelimit import refusals

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
    """Make a page that says what is wrong. It shows the request's ID, for `flask explain`.

    `detail`: the fault of an application, as an English sentence for its developers; `message` then
    says what it means for the person. Without a `hint`, the page says that trying again will not
    help. `link`: the text and the URL of a link, if there is something to try.
    """
    title = title or gettext("This request could not be processed")
    if error and detail:
        refusals.note_answer(error, detail)
    if is_noted:
        refusals.note(None, budget=None, facts={"page": title})
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


def report(words: str, status: int, error: str | None) -> None:
    """Log what a page says."""
    path = refusals.shown_path(request.path)
    logger.info("error page %s: %s %s %s: %s", error_id(), status, path, error or "-", words)


def error_id() -> str:
    """The id that an error page shows: that of the request, which is in the log, too."""
    found: str = g.sso_request_id
    return found


def support_url() -> str | None:
    """Where people get help; a mail has the error id in its subject."""
    url = context.settings().support_url
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
    """An error as RFC 6749 §5.2 writes it, with more members."""
    refusals.note_answer(error, description)
    body: dict[str, Any] = {"error": error, "error_description": description, **more}
    media_type = "application/json"
    if shape := g.get("sso_error_shape"):  # of another protocol
        make, media_type = shape
        body = make(status, description)
    response = Response(json.dumps(body), status=status, mimetype=media_type)
    response.headers.update({"Cache-Control": "no-store", "Pragma": "no-cache", **(headers or {})})
    return response


def from_oauth(error: OAuth2Error) -> Response:
    """A protocol error as JSON, with the headers that Authlib gives it."""
    headers = {name: value for name, value in error.get_headers() if name != "Content-Type"}
    description = error.get_error_description() or "The request is not valid."
    return as_json(error.error, description, error.status_code, headers)
