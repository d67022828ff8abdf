"""The Flask application: without what Flask and Jinja do again for each request.

Each of these is 1 to 4 % of the CPU time of a request; all of them, with what `i18n.languages` and
`oauth.bearer` leave out, are 10 % of userinfo and 15 % of a page.
"""

from collections.abc import Callable, MutableMapping
from typing import Any

from flask import Flask
from flask.templating import Environment


class _Environment(Environment):
    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        # Jinja copies its own ChainMap for each template that a page consists of.
        return {**self.globals, **(d or {})}


class Application(Flask):
    """Flask without coroutines."""

    jinja_environment = _Environment

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        # Flask asks ten times a request whether a function is a coroutine.
        return func
