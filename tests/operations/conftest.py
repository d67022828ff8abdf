"""Real servers for an operator's work."""

import secrets
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

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
