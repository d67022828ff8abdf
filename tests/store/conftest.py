"""The same tests on every database, with real concurrent connections."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import text

from sso import audit_trail, create_app, migrating
from sso.extensions import db
from sso.jobs.key_rotation import ensure_keys
from tests.conftest import SECRET_KEY
from tests.machines import postgresql


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Flask]:
    """An application on an empty database of each kind."""
    environ = {"SSO_SECRET_KEY": SECRET_KEY}
    if request.param == "postgresql":
        environ["SSO_DATABASE_URL"] = request.getfixturevalue("postgresql_url")
    made = create_app(environ, tmp_path)
    if request.param == "postgresql":
        with made.app_context():
            for statement in ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public"):
                db.session.execute(text(statement))
            db.session.commit()
    yield made
    audit_trail.flush(made)  # before the next test has tables of the same names
    with made.app_context():
        db.session.remove()
        db.engine.dispose()


@pytest.fixture
def app(empty_app: Flask) -> Flask:
    """Migrated, with signing keys; takes the place of the fixture of the other tests."""
    with empty_app.app_context():
        migrating.upgrade()
        ensure_keys(SECRET_KEY)
    return empty_app
