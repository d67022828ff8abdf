"""Pages that come in two parts, as over a slow network: `gunicorn tests.browser.torn:app`.

On one machine a page is whole so soon that a test which reads it without waiting for it passes
nearly always. Here it fails at once.
"""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from flask import Flask

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

BEGINNING, PAUSE = 60, 0.15


def torn(app: Flask) -> Flask:
    """The same application; an answer's first 60 bytes come 0.15 s before the rest."""
    whole = app.wsgi_app

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterator[bytes]:
        return _parts(whole(environ, start_response))

    app.wsgi_app = answer  # type: ignore[method-assign]  # as Flask's manual does
    return app


def _parts(body: Iterable[bytes]) -> Iterator[bytes]:
    try:
        whole = b"".join(body)
    finally:
        getattr(body, "close", lambda: None)()
    yield whole[:BEGINNING]
    if whole[BEGINNING:]:
        time.sleep(PAUSE)
        yield whole[BEGINNING:]


def __getattr__(name: str) -> Flask:
    """Build `app` for gunicorn alone: an import of `torn` needs no settings."""
    if name != "app":
        raise AttributeError(name)
    from wsgi import app

    return torn(app)
