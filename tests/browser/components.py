"""The server with a page of all components of administration: `tests.browser.components:app`."""

from pathlib import Path
from types import SimpleNamespace

from flask import Flask, Response, make_response, render_template_string

PATH = "/components"


def _page() -> Response:
    from sso.endpoints.admin.admin_page import SECTIONS, navigation
    from sso.flow.permissions import Permission, Rights
    from sso.web import headers

    headers.allow_own_script()
    source = Path(__file__).with_suffix(".html").read_text()
    section, everything = SECTIONS[1], Rights(frozenset(Permission))
    return make_response(
        render_template_string(
            source,
            section=section.endpoint,
            here=section,
            areas=navigation(everything),
            staff=SimpleNamespace(may_open=lambda _: True),
        )
    )


def __getattr__(name: str) -> Flask:
    """Build `app` for gunicorn alone: an import needs no settings."""
    if name != "app":
        raise AttributeError(name)
    from wsgi import app

    app.add_url_rule(PATH, "components", _page)
    return app
