"""The language of pages, chosen in this browser before anyone signs in."""

import re
from functools import lru_cache

from flask import redirect, request, url_for
from itsdangerous import BadData, URLSafeSerializer
from werkzeug.wrappers import Response

from sso import context
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
    """The path and query of this page, signed: only we say where the browser goes back to."""
    query = request.query_string.decode("latin-1")
    return str(_serializer().dumps(f"{request.path}?{query}" if query else request.path))


def _back(signed: str) -> str:
    try:
        path, mark, query = str(_serializer().loads(signed)).partition("?")
    except BadData:
        path = ""
    if routing.is_page(path) and _QUERY.fullmatch(query):
        return path + mark + query
    return url_for("pages.home")


def _serializer() -> URLSafeSerializer:
    return _serializer_by(*context.settings().signing_secrets)


@lru_cache(maxsize=4)  # as in `pending_request`
def _serializer_by(*secrets: str) -> URLSafeSerializer:
    return URLSafeSerializer(list(secrets), salt="page")
