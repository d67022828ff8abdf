"""The database connections that requests hold."""

from typing import cast

from flask import Flask
from sqlalchemy.pool import QueuePool

from sso.extensions import db


def held(app: Flask) -> int:
    """Return how many connections are held now, besides those that wait out of the pool."""
    with app.app_context():
        pool = cast(QueuePool, db.engine.pool)
    waiting: int = app.extensions["sso.kept_connections"].idle
    return pool.checkedout() - waiting
