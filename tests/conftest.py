"""Fixtures only. Each test has a database of its own, copied from one that was migrated once."""

import gc
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
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
from sso.store import schema
from tests.support.actors import Browser, RelyingParty
from tests.support.applications import Applications, environ_of
from tests.support.explaining import Explain
from tests.support.factories import ensure_keys, make_client, make_user
from tests.support.mailbox import Mailbox, MailServer, mail_server
from tests.support.processes import SECRET_KEY as SECRET_KEY
from tests.support.scene import Scene
from tests.support.servers import Postgresql
from tests.support.statements import watched

# Imports make hardly any rubbish: looking for it would take a fifth of the collection.
gc.set_threshold(100_000, 20, 20)

# A busy machine makes any example slow.
hypothesis.settings.register_profile("ours", deadline=None)
hypothesis.settings.load_profile("ours")

# Nothing of a test stays open: the next one gets another file or other rows.
buffer.BURST_ENDS = 0

# Tests here need a service, a browser, a server process or much time together. Files elsewhere
# mark themselves.
SLOW = (
    "applications",
    "attacks",
    "bench",
    "browser",
    "cli",
    "clients",
    "conformance",
    "explain",
    "journeys",
    "operations",
    "presets",
    "production",
    "scim",
    "store",
)
TESTS = Path(__file__).parent
_IS_SLOW = re.compile(r"^pytestmark = \[?pytest\.mark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what would be deselected."""
    if config.option.markexpr == "not slow":
        if collection_path.parent == TESTS and collection_path.name in SLOW:
            return True
        is_test = collection_path.match("test_*.py")
        return True if is_test and _IS_SLOW.search(collection_path.read_text()) else None
    if config.option.markexpr == "slow" and collection_path.match("test_*.py"):
        is_slow = collection_path.relative_to(TESTS).parts[0] in SLOW
        return None if is_slow or "slow" in collection_path.read_text() else True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow; what takes longest comes first, so that none of it is left to the end."""
    longest = ("applications", "production", "browser")
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0] not in longest)
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in SLOW:
            item.add_marker(pytest.mark.slow)


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
        yield


@pytest.fixture(autouse=True)
def _forget_nobody() -> None:
    """The hash for unknown users is of the hasher of this test."""
    passwords._nobody.cache_clear()


# Most tests run on SQLite, and with TEST_DATABASE=postgresql on PostgreSQL.
ON_POSTGRESQL = os.environ.get("TEST_DATABASE", "sqlite") == "postgresql"


def migrate(url: str | None, instance: Path) -> None:
    """Bring a database to the current schema, with signing keys."""
    app = create_app(environ_of(url), instance)
    with app.app_context():
        schema.upgrade()
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


@pytest.fixture
def database_url(template: Path | Rows, tmp_path: Path) -> str | None:
    """A database as after the migration; `None` is the default, a file in the instance folder."""
    return fresh_database(template, tmp_path)


def fresh_database(template: Path | Rows, instance: Path) -> str | None:
    if isinstance(template, Path):
        shutil.copy(template, instance / "sso.db")
        return None
    template.restore()
    return template.url


def pytest_collection_finish() -> None:
    """What was loaded stays: looking through it for rubbish again and again takes long."""
    gc.collect()
    gc.freeze()


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


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
        self.tick = timedelta(microseconds=1)  # two readings are never the same, as in life

    def now(self) -> datetime:
        self.time += self.tick
        return self.time

    def stand_still(self) -> None:
        """Give the same time until it is moved: for what ends at an exact moment."""
        self.tick = timedelta(0)

    def move(self, **delta: float) -> None:
        self.time += timedelta(**delta)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moving = Clock()
    monkeypatch.setattr(sso_clock, "source", moving.now)
    return moving


@pytest.fixture
def scene(app: Flask, browser: Browser, client: RelyingParty, user: User, clock: Clock) -> Scene:
    return Scene(app, browser, client, make_client(app, name="Other"), user, clock)


class Statements(list[str]):
    """The SQL statements of a block, and how many commits there were."""

    commits = 0


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
