"""Brings a database to another schema: Flask-Migrate, bound to the application when needed."""

import flask_migrate
from alembic import command
from flask import Flask, current_app
from flask_migrate import Migrate
from sqlalchemy import Engine

from sso import models
from sso.database import schema
from sso.extensions import db

_migrate = Migrate(directory=str(schema.FOLDER), render_as_batch=True)


def bind(app: Flask) -> None:
    """Give the application Flask-Migrate's settings; `flask db` stays ours."""
    models.load_all()  # Alembic compares them all
    if "migrate" not in app.extensions:
        commands = dict(app.cli.commands)
        _migrate.init_app(app, db)
        app.cli.commands = commands


def upgrade(revision: str = "head") -> None:
    """Bring the application's database forward to this revision."""
    bind(current_app)
    flask_migrate.upgrade(revision=revision)


def downgrade(revision: str) -> None:
    """Bring the application's database back to this revision."""
    bind(current_app)
    flask_migrate.downgrade(revision=revision)


def check() -> None:
    """Exit unless the application's database has the tables of the models."""
    bind(current_app)
    flask_migrate.check()


def make_tables(engine: Engine, revision: str = "head") -> None:
    """Create the schema of this revision in another, empty database."""
    bind(current_app)
    config = current_app.extensions["migrate"].migrate.get_config()
    config.attributes["engine"] = engine
    command.upgrade(config, revision)
