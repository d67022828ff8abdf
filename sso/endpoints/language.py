"""The language of pages, chosen in this browser before anyone signs in."""

import re

from flask import redirect, request, url_for
from itsdangerous import BadData, Signer, base64_decode, base64_encode
from werkzeug.wrappers import Response

from sso import context
from sso.endpoints.forms import LanguageForm
from sso.i18n.languages import LANGUAGES
from sso.web import cookies, routing

_QUERY = re.compile(r"[!-~]*")


def language() -> Response:
    """Store the language for this browser, and redirect back to the page of the choice."""
    form = LanguageForm()
    response = redirect(_back(form.back.data), 303)
    # Without a valid CSRF token, the page is shown again with a new one.
    if request.method == "POST" and form.validate() and form.language.data in LANGUAGES:
        cookies.choose_language(response, form.language.data)
    return response


def here() -> str:
    """Return the path and query of this page, signed, so that nobody can forge a redirect."""
    query = request.query_string.decode("latin-1")
    path = f"{request.path}?{query}" if query else request.path
    return (
        _signer().sign(base64_encode(path)).decode()
    )  # encoded, so that pages do not show a stranger's query


def _back(signed: str) -> str:
    try:
        path, mark, query = base64_decode(_signer().unsign(signed)).decode().partition("?")
    except BadData:
        path = ""
    if routing.is_page(path) and _QUERY.fullmatch(query):
        return path + mark + query
    return url_for("pages.home")


def _signer() -> Signer:
    return Signer(context.settings().signing_secrets, salt="page")
