"""Check that this program can serve on its database, for `/readyz` and the start of gunicorn."""

import logging

from flask import Flask
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from sso.crypto import keys
from sso.database import dialects, schema
from sso.extensions import db
from sso.i18n.message import Message
from sso.process.program import COMMAND

logger = logging.getLogger("sso.start")
HINT = f"run: {COMMAND} db upgrade"
READ_ONLY = Message("the database takes no writes: it is a standby, or another server replaced it")


def problem(key_ring: keys.KeyRing) -> str | None:
    """Return why this program cannot serve, with the remedy; `None` if it can."""
    try:
        # An unknown revision is newer than this program. Migrations expand first and
        # contract a version later, so the previous version serves on it.
        revision = schema.revision(db.session.connection())
        if revision is None:
            return f"the database has no tables yet; {HINT}"
        if revision != schema.newest() and revision in schema.known():
            return f"the schema is {revision}, older than this program; {HINT}"
        if is_read_only(db.session.connection()):
            db.session.remove()
            db.engine.dispose()  # the next connections may lead to another server
            return READ_ONLY
        for alg in keys.ALGORITHMS:
            key_ring.active(alg)
    except SQLAlchemyError:
        return "the database cannot be reached"
    except keys.KeyUnavailable as error:
        return str(error)
    return None


def is_read_only(connection: Connection) -> bool:
    """Return whether PostgreSQL refuses to write, as a standby does."""
    if not dialects.is_postgresql(connection):
        return False
    return bool(connection.scalar(text("SHOW transaction_read_only")) == "on")


def examine(app: Flask) -> None:
    """Log at the start why the service is not ready, if it is not, and read the keys.

    It never raises: a server that starts before its database must go on.
    """
    with app.app_context():
        reason = problem(app.extensions["sso.keys"])
        db.session.remove()
        db.engine.dispose()
    if reason:
        logger.error("not ready: %s", reason)
