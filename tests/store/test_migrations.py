"""Migrations and constraints, on every database."""

import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from alembic.script import ScriptDirectory
from flask import Flask
from sqlalchemy import inspect, select, text
from sqlalchemy.exc import IntegrityError

from sso import create_app
from sso.crypto.keys import ALGORITHMS
from sso.database import dialects, schema
from sso.extensions import Base, db
from sso.models import ClientOrigin, KeyState, SigningKey, User
from sso.store import keys, migrations, scim_resources
from tests.support.factories import make_client
from tests.support.processes import ROOT, SECRET_KEY


def test_the_migrations_make_the_tables(app: Flask) -> None:
    with app.app_context():
        migrations.check()
        of_sqlite = set() if dialects.is_postgresql() else {"memberships"}
        assert set(inspect(db.engine).get_table_names()) == {
            *Base.metadata.tables,
            *of_sqlite,
            "alembic_version",
        }


def test_down_and_up_again(own_tables: Flask) -> None:
    app = own_tables
    with app.app_context():
        migrations.downgrade(revision="base")
        assert inspect(db.engine).get_table_names() == ["alembic_version"]
        migrations.upgrade()
        migrations.check()


def test_origins_are_found_after_the_upgrade(own_tables: Flask) -> None:
    app = own_tables
    uris = ["https://a.example:8443/x", "http://[::1]:7/x", "https://a.example:8443/y", "b.c:/x"]
    spa, _ = make_client(app, redirect_uris=uris, public=True), make_client(app)
    with app.app_context():
        migrations.downgrade(revision="0012")
        migrations.upgrade()
        found = {(row.client_id, row.origin) for row in db.session.scalars(select(ClientOrigin))}
    origins = ("https://a.example:8443", "http://[::1]")
    assert found == {(spa.client_id, origin) for origin in origins}


def test_upgrades_at_once(empty_app: Flask, tmp_path: Path) -> None:
    """Nodes that start together: one migrates, the others wait and find nothing to do."""
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SSO_")},
        "SSO_SECRET_KEY": SECRET_KEY,
        "SSO_DATABASE_URL": empty_app.config["SQLALCHEMY_DATABASE_URI"],
    }
    command = [sys.executable, "-m", "flask", "db", "upgrade"]
    started = [
        subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    ended = [(process.communicate(timeout=60)[1], process.returncode) for process in started]
    assert [code for _, code in ended] == [0, 0, 0], ended
    with empty_app.app_context():
        migrations.check()
        assert len(keys.every_signing_key()) == 2 * len(ALGORITHMS)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_migration_waits_for_a_transaction_without_stopping_others(own_tables: Flask) -> None:
    """It gives up after a moment, so that requests behind it go on, and tries again."""
    app = own_tables
    is_held, held_for = Event(), 1.5  # seconds; more than two attempts

    def hold() -> None:
        with app.app_context(), db.engine.begin() as connection:
            connection.execute(text("SELECT count(*) FROM tokens"))
            is_held.set()
            time.sleep(held_for)

    def read() -> float:
        """Return the longest wait of readers meanwhile, in seconds."""
        longest, end = 0.0, time.monotonic() + held_for
        with app.app_context():
            while (start := time.monotonic()) < end:
                with db.engine.connect() as connection:
                    connection.execute(text("SELECT count(*) FROM clients"))
                longest = max(longest, time.monotonic() - start)
        return longest

    with app.app_context():
        migrations.downgrade(revision="0034")
        with ThreadPoolExecutor(2) as threads:
            threads.submit(hold)
            assert is_held.wait(10)
            waited = threads.submit(read)
            migrations.upgrade()
            assert waited.result() < held_for - 0.5
        migrations.check()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("may_create", [True, False])
def test_the_index_of_trigrams_is_left_out_where_it_cannot_be(
    own_tables: Flask, may_create: bool
) -> None:
    """A role may own the tables, but not create extensions."""
    app = own_tables
    with app.app_context():
        migrations.downgrade(revision="0052")
        with db.engine.begin() as connection:
            connection.execute(text("DROP EXTENSION IF EXISTS pg_trgm"))
            if not may_create:  # as PostgreSQL does on a server without the extension
                connection.execute(
                    text(
                        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS"
                        " $$BEGIN RAISE insufficient_privilege; END$$"
                    )
                )
                connection.execute(
                    text(
                        "CREATE EVENT TRIGGER refusing ON ddl_command_start"
                        " WHEN TAG IN ('CREATE EXTENSION') EXECUTE FUNCTION refuse()"
                    )
                )
        try:
            migrations.upgrade()
            assert scim_resources.has_trigrams() is may_create
            migrations.check()
        finally:
            with db.engine.begin() as connection:
                connection.execute(text("DROP EVENT TRIGGER IF EXISTS refusing"))
                connection.execute(text("DROP FUNCTION IF EXISTS refuse()"))


def test_foreign_keys_hold(app: Flask) -> None:
    with app.app_context(), pytest.raises(IntegrityError):
        db.session.execute(
            text(
                "INSERT INTO consents (user_id, client_id, scope, created_at, updated_at)"
                " VALUES (:u, 'nobody', 'openid', :t, :t)"
            ),
            {"u": "0" * 32, "t": "2026-01-01"},
        )


def test_an_email_is_taken_once(app: Flask) -> None:
    with app.app_context():
        db.session.add_all([User(email="a@example.com", name=name) for name in "AB"])
        with pytest.raises(IntegrityError):
            db.session.commit()


def test_an_email_is_lower_case(app: Flask) -> None:
    with app.app_context():
        db.session.add(User(email="A@example.com", name="A"))
        with pytest.raises(IntegrityError):
            db.session.commit()


@pytest.mark.parametrize("state", [KeyState.NEXT, KeyState.ACTIVE])
def test_of_each_algorithm_one_key_is_next_and_one_active(app: Flask, state: KeyState) -> None:
    with app.app_context():
        key = {"alg": "ES256", "state": state, "public_jwk": "{}", "sealed_private_jwk": ""}
        db.session.add(SigningKey(kid="another", **key))
        with pytest.raises(IntegrityError):
            db.session.commit()


def test_the_program_knows_its_migrations() -> None:
    scripts = ScriptDirectory(str(schema.FOLDER))
    assert schema.known() == tuple(script.revision for script in scripts.walk_revisions())
    assert schema.newest() == scripts.get_current_head()


def test_a_server_loads_only_what_it_uses() -> None:
    unused = {"alembic", "psycopg", "pydantic", "redis", "sso.cli", "sso.scim"}
    program = f"import sys, wsgi; print(*sorted({unused} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "\n"


def test_the_file_is_nobody_elses(tmp_path: Path) -> None:
    app = create_app({"SSO_SECRET_KEY": SECRET_KEY}, tmp_path)
    with app.app_context():
        migrations.upgrade()
        db.engine.dispose()
    assert stat.S_IMODE((tmp_path / "sso.db").stat().st_mode) == 0o600
