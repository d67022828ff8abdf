"""Whether this program can serve on its database: `/readyz` and the start of gunicorn ask it."""

import logging
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from flask import Flask, current_app
from sqlalchemy.exc import SQLAlchemyError

from sso import current, keys
from sso.extensions import db

logger = logging.getLogger("sso.start")


def problem() -> str | None:
    """Why it cannot serve, with the mend; `None` when it can."""
    try:
        revision = _revision()
        if revision is None or (revision != _newest() and revision in _known()):
            return f"the schema is {revision or 'missing'}, older than this program; {MEND}"
        for alg in keys.ALGORITHMS:
            current.key_ring().active(alg)
    except SQLAlchemyError:
        return "the database cannot be reached"
    except keys.NoActiveKey:
        return f"there is no active signing key; {MEND}"
    return None


MEND = "run: flask db upgrade"


def schema_is_current() -> bool:
    """Whether the database has the newest migration that this program knows, and no newer one."""
    return _revision() == _newest()


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
    return MigrationContext.configure(db.session.connection()).get_current_revision()


def _newest() -> str | None:
    return _known()[0] if _known() else None


def _known() -> tuple[str, ...]:
    """The migrations of this program, newest first."""
    known: tuple[str, ...] | None = current_app.extensions.get("sso.migrations")
    if known is None:
        directory = str(current_app.extensions["migrate"].directory)
        scripts = ScriptDirectory(directory) if Path(directory).is_dir() else None
        known = tuple(s.revision for s in scripts.walk_revisions()) if scripts else ()
        current_app.extensions["sso.migrations"] = known
    return known
