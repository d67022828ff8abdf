"""Fixtures of all tests. Each test has its own database, a copy of one that was migrated once."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
import pytest
import segno
from argon2 import PasswordHasher
from flask import Flask
from joserfc.jwk import Key, import_key
from sqlalchemy import MetaData, Table, create_engine, event, select

from sso import clock as sso_clock
from sso import create_app
from sso.crypto import keys, passwords
from sso.database import buffer
from sso.extensions import Base, db
from sso.models import User
from sso.process import concurrency
from sso.store import migrations
from tests.conftest import ON_POSTGRESQL, Clock, Statements
from tests.support.actors import Browser, RelyingParty
from tests.support.applications import Applications, environ_of
from tests.support.explaining import Explain
from tests.support.factories import ensure_keys, make_client, make_user
from tests.support.mailbox import Mailbox, MailServer, mail_server
from tests.support.processes import SECRET_KEY
from tests.support.scene import Scene
from tests.support.servers import Postgresql
from tests.support.statements import watched

MEMORY = Path("/dev/shm")

# A busy machine makes any example slow.
_EXAMPLES = 100 if os.environ.get("EXHAUSTIVE") else 30
hypothesis.settings.register_profile("ours", deadline=None, max_examples=_EXAMPLES)
hypothesis.settings.load_profile("ours")

# Nothing of a test stays open: the next one gets another file or other rows.
buffer.BURST_ENDS = 0


@cache
def _import_once(jwk: str) -> Key:
    return import_key(json.loads(jwk))


@pytest.fixture(autouse=True, scope="session")
def _quick() -> Iterator[None]:
    """Passwords hash cheaply, signing keys are checked once, who is refused is told at once."""
    with pytest.MonkeyPatch.context() as patch:
        cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        patch.setattr(passwords, "hasher", cheap)
        patch.setattr(keys, "import_key", lambda jwk: _import_once(json.dumps(jwk)))
        patch.setattr(concurrency, "REFUSAL_DELAY", 0)
        # Nor are all eight masks of a QR code compared.
        patch.setattr(segno, "make", partial(segno.make, mask=0))
        yield


@pytest.fixture(autouse=True)
def _forget_nobody() -> None:
    """The hash for unknown users is of the hasher of this test."""
    passwords._nobody.cache_clear()


def migrate(url: str | None, instance: Path) -> None:
    """Bring a database to the current schema, with signing keys."""
    app = create_app(environ_of(url), instance)
    with app.app_context():
        migrations.upgrade()
        ensure_keys(SECRET_KEY)
        db.session.remove()
        db.engine.dispose()


class Rows:
    """A migrated PostgreSQL database, to which a test brings back its first rows."""

    def __init__(self, url: str) -> None:
        self.url, self._engine = url, create_engine(url, isolation_level="AUTOCOMMIT")
        version = Table("alembic_version", MetaData(), autoload_with=self._engine)
        tables = [*Base.metadata.sorted_tables, version]
        with self._engine.connect() as connection:
            kept = [t.name for t in tables if connection.execute(select(t)).first()]
            connection.exec_driver_sql("CREATE SCHEMA kept")
            for name in kept:
                connection.exec_driver_sql(f"CREATE TABLE kept.{name} AS TABLE public.{name}")
        # One round trip, and one transaction.
        self._script = ";".join(
            [
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()",
                *(f"DELETE FROM {table.name}" for table in reversed(tables)),
                *(f"INSERT INTO {name} SELECT * FROM kept.{name}" for name in kept),
            ]
        )

    def restore(self) -> None:
        """As after the migration; anyone that the last test left connected is sent away."""
        with self._engine.connect() as connection:
            connection.exec_driver_sql(self._script)

    def dispose(self) -> None:
        self._engine.dispose()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | Rows]:
    """A migrated database with signing keys: an SQLite file, or PostgreSQL and what is in it."""
    instance = tmp_path_factory.mktemp("template")
    if not ON_POSTGRESQL:
        migrate(None, instance)
        yield instance / "sso.db"
        return
    cluster = Postgresql(fsync="off")
    try:
        cluster.start()
        migrate(cluster.url, instance)
        rows = Rows(cluster.url)
        yield rows
        rows.dispose()
    finally:
        cluster.remove()


@pytest.fixture(scope="session")
def database_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For the files of SQLite: in memory where there is room, so that no test waits for a disk."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**30:
        with TemporaryDirectory(prefix="sso-tests-", dir=MEMORY) as folder:
            yield Path(folder)
    else:
        yield tmp_path_factory.mktemp("databases")


@contextmanager
def fresh_database(template: Path | Rows, folder: Path, instance: Path) -> Iterator[str | None]:
    """A database as after the migration; `None` is the default, a file in the instance folder."""
    if isinstance(template, Rows):
        template.restore()
        yield template.url
        return
    with TemporaryDirectory(dir=folder) as own:
        file = Path(own, "sso.db")
        shutil.copy(template, file)
        (instance / "sso.db").symlink_to(file)
        yield None


@pytest.fixture
def database_url(
    template: Path | Rows, database_folder: Path, tmp_path: Path
) -> Iterator[str | None]:
    with fresh_database(template, database_folder, tmp_path) as url:
        yield url


@pytest.fixture(scope="session")
def _applications(tmp_path_factory: pytest.TempPathFactory) -> Applications:
    return Applications(tmp_path_factory.mktemp("applications"))


@pytest.fixture
def make_app(
    _applications: Applications, database_url: str | None, tmp_path: Path
) -> Iterator[Callable[..., Flask]]:
    """Make an application with these settings; all of one test share one database."""
    with _applications.of_a_test(database_url, tmp_path) as make:
        yield make


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app()


@pytest.fixture
def browser(app: Flask) -> Browser:
    return Browser(app)


@pytest.fixture
def explain(app: Flask) -> Explain:
    return Explain(app)


@pytest.fixture
def user(app: Flask) -> User:
    return make_user(app)


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moving = Clock()
    monkeypatch.setattr(sso_clock, "source", moving.now)
    return moving


@pytest.fixture
def scene(app: Flask, browser: Browser, client: RelyingParty, user: User, clock: Clock) -> Scene:
    return Scene(app, browser, client, make_client(app, name="Other"), user, clock)


@pytest.fixture
def statements(app: Flask) -> Callable[[], AbstractContextManager[Statements]]:
    """Count the SQL statements in a block."""

    @contextmanager
    def count() -> Iterator[Statements]:
        seen = Statements()

        def committed(_c: Any) -> None:
            seen.commits += 1

        with app.app_context():
            engine = db.engine
        event.listen(engine, "commit", committed)
        try:
            with watched(engine, lambda statement, _: seen.append(statement)):
                yield seen
        finally:
            event.remove(engine, "commit", committed)

    return count


@pytest.fixture(scope="session")
def _mail_server() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture
def smtp(_mail_server: MailServer) -> MailServer:
    """A real mail server, empty."""
    _mail_server.messages.clear()
    _mail_server.refused.clear()
    return _mail_server


@pytest.fixture
def mailbox(app: Flask, smtp: MailServer) -> Mailbox:
    """The application sends its mails to a real server, and these are they."""
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, smtp_url=smtp.url)
    return Mailbox(app, smtp)
