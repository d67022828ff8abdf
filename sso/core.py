"""What every program of this package runs on: settings, log, database and audit trail.

Commands need no more. The web application adds the rest (see `sso.create_app`).
"""

import os
from collections.abc import Mapping
from pathlib import Path

from flask import Flask
from sqlalchemy.pool import NullPool

from sso import command_line, database
from sso.audit import writer
from sso.config.settings import load_settings
from sso.extensions import db
from sso.observability import logs


def create_app(environ: Mapping[str, str] | None, instance: Path) -> Flask:
    """An application without pages. Raises `SettingsError` with every fault."""
    settings = load_settings(os.environ if environ is None else environ, instance)
    app = Flask("sso", instance_path=str(instance), static_folder=None)  # see web.static_files
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
