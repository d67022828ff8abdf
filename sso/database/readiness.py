"""Whether this program can serve on its database: `/readyz` and the start of gunicorn ask it."""

import logging

from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from sso import context
from sso.crypto import keys
from sso.database import schema
from sso.extensions import db

logger = logging.getLogger("sso.start")


def problem() -> str | None:
    """Why it cannot serve, with the mend; `None` when it can."""
    try:
        revision = _revision()
        if revision is None:
            return f"the database has no tables yet; {MEND}"
        if revision != schema.newest() and revision in schema.known():
            return f"the schema is {revision}, older than this program; {MEND}"
        for alg in keys.ALGORITHMS:
            context.key_ring().active(alg)
    except SQLAlchemyError:
        return "the database cannot be reached"
    except keys.KeyUnavailable as why:
        return str(why)
    return None


MEND = "run: flask db upgrade"


def schema_is_current() -> bool:
    """Whether the database has the newest migration that this program knows, and no newer one."""
    return _revision() == schema.newest()


def examine(app: Flask) -> None:
    """Log at the start what keeps the service from answering; read the keys if nothing does.

    A server that starts before its database must not give up: this never raises.
    """
    with app.app_context():
        found = problem()
        db.session.remove()
        db.engine.dispose()
    if found:
        logger.error("not ready: %s", found)


def _revision() -> str | None:
    """The migration that the database is at. One that we don't know is newer than this program:
    migrations expand first and contract a version later, so the program before serves on it."""
    return schema.revision(db.session.connection())
