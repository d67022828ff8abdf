"""Fixtures only. Each test has a database of its own, copied from one that was migrated once."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import flask_migrate
import pytest
from argon2 import PasswordHasher
from flask import Flask
from sqlalchemy import event

from sso import clock as sso_clock
from sso import create_app, passwords
from sso.extensions import db
from sso.jobs.key_rotation import ensure_keys
from sso.models import User
from tests.actors import Browser, RelyingParty
from tests.factories import make_client, make_user
from tests.mailbox import Mailbox, MailServer, mail_server

SECRET_KEY = "a secret key for tests, and for tests alone"


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords hash cheaply."""
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "hasher", cheap)
    passwords._nobody.cache_clear()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database with signing keys."""
    instance = tmp_path_factory.mktemp("template")
    app = create_app({"SSO_SECRET_KEY": SECRET_KEY}, instance)
    with app.app_context():
        flask_migrate.upgrade()
        ensure_keys(SECRET_KEY)
        db.session.remove()
        db.engine.dispose()
    return instance / "sso.db"


@pytest.fixture
def make_app(template: Path, tmp_path: Path) -> Callable[..., Flask]:
    """Make an application with these settings; all of one test share one database."""

    def make(**environ: str) -> Flask:
        if not (tmp_path / "sso.db").exists():
            shutil.copy(template, tmp_path / "sso.db")
        app = create_app({"SSO_SECRET_KEY": SECRET_KEY, **environ}, tmp_path)
        app.config["TESTING"] = True
        # As in production: a fault becomes an answer, which the tests then look at.
        app.config["PROPAGATE_EXCEPTIONS"] = False
        return app

    return make


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app()


@pytest.fixture
def browser(app: Flask) -> Browser:
    return Browser(app)


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

    def now(self) -> datetime:
        # Two readings are never the same, as in life.
        self.time += timedelta(microseconds=1)
        return self.time

    def move(self, **delta: float) -> None:
        self.time += timedelta(**delta)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moving = Clock()
    monkeypatch.setattr(sso_clock, "source", moving.now)
    return moving


class Statements(list[str]):
    """The SQL statements of a block, and how many commits there were."""

    commits = 0


@pytest.fixture
def statements(app: Flask) -> Callable[[], AbstractContextManager[Statements]]:
    """Count the SQL statements in a block."""

    @contextmanager
    def count() -> Iterator[Statements]:
        seen = Statements()

        def note(_c: Any, _cur: Any, statement: str, *_: Any) -> None:
            seen.append(statement)

        def committed(_c: Any) -> None:
            seen.commits += 1

        with app.app_context():
            engine = db.engine
        event.listen(engine, "before_cursor_execute", note)
        event.listen(engine, "commit", committed)
        try:
            yield seen
        finally:
            event.remove(engine, "before_cursor_execute", note)
            event.remove(engine, "commit", committed)

    return count


@pytest.fixture(scope="session")
def _mail_server() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture
def mailbox(app: Flask, _mail_server: MailServer) -> Mailbox:
    """The application sends its mails to a real server, and these are they."""
    _mail_server.messages.clear()
    _mail_server.refused.clear()
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, smtp_url=_mail_server.url)
    return Mailbox(app, _mail_server)
