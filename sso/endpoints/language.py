"""The language of pages, chosen in this browser before anyone signs in."""

import re

from flask import redirect, request, url_for
from werkzeug.wrappers import Response

from sso.endpoints.forms import LanguageForm
from sso.i18n.languages import LANGUAGES
from sso.web import cookies, routing

_QUERY = re.compile(r"[!-~]*")


def language() -> Response:
    """Remembers the language for this browser, and leads back to the page where it was chosen."""
    form = LanguageForm()
    response = redirect(_back(form.back.data), 303)
    # Without a valid token the page comes again, with a new one.
    if request.method == "POST" and form.validate() and form.language.data in LANGUAGES:
        cookies.choose_language(response, form.language.data)
    return response


def here() -> str:
    """The path and query of this page."""
    query = request.query_string.decode("latin-1")
    return f"{request.path}?{query}" if query else request.path


def _back(sent: str) -> str:
    """Where any link could lead, too: to a page of ours."""
    path, mark, query = sent.partition("?")
    if routing.is_page(path) and _QUERY.fullmatch(query):
        return path + mark + query
    return url_for("pages.home")
