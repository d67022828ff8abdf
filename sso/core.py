"""What every program of this package runs on: settings, log, database and audit trail.

Commands need no more. The web application adds the rest (see `application`).
"""

import os
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from flask import Flask
from flask.templating import Environment
from sqlalchemy.pool import NullPool

from sso import command_line, database
from sso.audit import writer
from sso.config.settings import load_settings
from sso.extensions import db
from sso.observability import logs


class _Environment(Environment):
    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        # Jinja copies its own ChainMap for each template that a page consists of: 9 % of a page.
        return {**self.globals, **(d or {})}


class Application(Flask):
    """Flask without coroutines."""

    jinja_environment = _Environment

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        # Flask asks ten times a request whether a function is one: 4 % of the CPU of userinfo.
        return func


def create_app(environ: Mapping[str, str] | None, instance: Path) -> Flask:
    """An application without pages. Raises `SettingsError` with every fault."""
    settings = load_settings(os.environ if environ is None else environ, instance)
    app = Application("sso", instance_path=str(instance), static_folder=None)  # see assets
    app.extensions["sso.settings"] = settings
    app.config.update(SECRET_KEY=settings.secret_key, SQLALCHEMY_TRACK_MODIFICATIONS=False)
    logs.configure(app)
    database.configure(app, settings.database_url)
    db.init_app(app)
    database.prepare(app)
    with app.app_context():
        writer.init_app(app, database.open_engine(db.engine.url, poolclass=NullPool))
    command_line.init_app(app)
    return app
