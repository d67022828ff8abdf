"""Alive, and able to serve."""

import json
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from flask import Response, current_app
from sqlalchemy.exc import SQLAlchemyError

from sso import current, keys
from sso.extensions import db


def healthz() -> Response:
    """The process answers."""
    return _answer(200, {"status": "ok"})


def readyz() -> Response:
    """Database reachable, schema current, a signing key active; 503 with the reason if not."""
    problem = _problem()
    if problem:
        response = _answer(503, {"status": "unavailable", "reason": problem})
        response.headers["Retry-After"] = "5"
        return response
    return _answer(200, {"status": "ready"})


def schema_is_current() -> bool:
    """Whether the database has the newest migration."""
    current_revision = MigrationContext.configure(db.session.connection()).get_current_revision()
    return current_revision == _newest()


def _newest() -> str | None:
    directory = str(current_app.extensions["migrate"].directory)
    newest: str | None = current_app.extensions.get("sso.newest_migration")
    if newest is None and Path(directory).is_dir():
        newest = ScriptDirectory(directory).get_current_head()
        current_app.extensions["sso.newest_migration"] = newest
    return newest


def _problem() -> str | None:
    try:
        if not schema_is_current():
            return "the schema is not current; run: flask db upgrade"
        for alg in keys.ALGORITHMS:
            current.key_ring().active(alg)
    except SQLAlchemyError:
        return "the database cannot be reached"
    except keys.NoActiveKey:
        return "there is no active signing key; run: flask db upgrade"
    return None


def _answer(status: int, body: dict[str, str]) -> Response:
    return Response(json.dumps(body), status=status, mimetype="application/json")
