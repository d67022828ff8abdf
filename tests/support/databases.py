"""Applications on every database, for tests that run on each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import create_engine, text

from sso import create_app
from sso.audit import writer
from sso.extensions import db
from sso.store import refusals
from tests.support.applications import environ_of
from tests.support.fixtures import Rows, fresh_database, migrate
from tests.support.servers import postgresql


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def url_of(server: str, name: str) -> str:
    return f"{server.rpartition('/')[0]}/{name}"


def create_database(server: str, name: str, template: str) -> str:
    """A PostgreSQL database in place of one of this name; gives its URL."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
    engine.dispose()
    return url_of(server, name)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    instance = tmp_path_factory.mktemp("migrated-file")
    migrate(None, instance)
    return instance / "sso.db"


@pytest.fixture(scope="session")
def migrated_database(postgresql_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a migrated database of the server, to be copied."""
    url = create_database(postgresql_url, "migrated", "template0")
    migrate(url, tmp_path_factory.mktemp("migrated-database"))
    return "migrated"


@pytest.fixture(scope="session")
def rows(postgresql_url: str, migrated_database: str) -> Iterator[Rows]:
    """A database for one test after the other."""
    made = Rows(create_database(postgresql_url, "rows", migrated_database))
    yield made
    made.dispose()


def _running(environ: dict[str, str], instance: Path) -> Iterator[Flask]:
    made = create_app(environ, instance)
    yield made
    # Before the next test has tables of the same names.
    writer.flush(made)
    refusals.flush(made)
    with made.app_context():
        db.session.remove()
        db.engine.dispose()


@pytest.fixture
def empty_app(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Flask]:
    """An application on an empty database of each kind."""
    url = None
    if database == "postgresql":
        url = create_database(request.getfixturevalue("postgresql_url"), "test", "template0")
    yield from _running(environ_of(url), tmp_path)


@pytest.fixture
def app_on_each(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Flask]:
    """Migrated, with signing keys."""
    name = "rows" if database == "postgresql" else "migrated_file"
    folder = request.getfixturevalue("database_folder")
    with fresh_database(request.getfixturevalue(name), folder, tmp_path) as url:
        yield from _running(environ_of(url), tmp_path)


@pytest.fixture
def own_tables(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Flask]:
    """The same application for a test that changes its tables."""
    if database == "sqlite":
        yield request.getfixturevalue("app_on_each")
        return
    template = request.getfixturevalue("migrated_database")
    url = create_database(request.getfixturevalue("postgresql_url"), "test", template)
    yield from _running(environ_of(url), tmp_path)
