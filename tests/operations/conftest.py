"""Real servers for an operator's work."""

import secrets
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import create_engine, text

from sso import create_app
from sso.audit import writer
from sso.extensions import db
from tests.support.processes import Server
from tests.support.servers import postgresql


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a PostgreSQL server."""
    with postgresql() as url:
        yield url


@pytest.fixture(scope="session")
def server(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """gunicorn with two workers on PostgreSQL."""
    folder = tmp_path_factory.mktemp("server")
    with Server(folder, SSO_DATABASE_URL=fresh_database(cluster)).running() as running:
        running.flask("worker", "--once")
        yield running


def fresh_database(cluster: str) -> str:
    """A new, empty database in the cluster."""
    name = f"sso_{secrets.token_hex(6)}"
    engine = create_engine(cluster, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return cluster.rpartition("/")[0] + f"/{name}"


def command(server: Server, *arguments: str) -> str:
    """Run a command of the server in this process, in a tenth of a program's time.

    For what a test prepares and tidies up; gives its standard output.
    """
    environ = {name: v for name, v in server.environ.items() if name.startswith("SSO_")}
    app = _application(tuple(environ.items()), server.folder)
    done = app.test_cli_runner().invoke(args=arguments)
    writer.flush(app)
    with app.app_context():
        db.session.remove()
        db.engine.dispose()
    assert done.exit_code == 0, done.output
    return done.stdout


@cache
def _application(environ: tuple[tuple[str, str], ...], folder: Path) -> Flask:
    return create_app(dict(environ), folder)
