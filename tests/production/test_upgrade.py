"""Upgrades: the last release serves on while, and after, newer migrations are applied."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect

from sso.database import schema
from sso.extensions import db
from sso.store import migrations
from tests.operations.conftest import fresh_database
from tests.production.audit import audit
from tests.production.expected import Customer, Expected
from tests.production.people import CALLBACK, EMAIL, PASSWORD, Person
from tests.production.seeding import application
from tests.support import releases
from tests.support.processes import CONFIGURATION, ROOT, wait_for
from tests.support.servers import Node, Postgresql

MIGRATIONS = ScriptDirectory(str(ROOT / "migrations"))
# The installed project must not lend the old one its newer modules and commands.
ALONE = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if "__editable__" not in repr(one)]
"""
FLASK = f"""{ALONE}
from flask.cli import FlaskGroup
from sso.wsgi import app
group = FlaskGroup(create_app=lambda: app)
group._loaded_plugin_commands = True
group.main(sys.argv[1:])
"""
GUNICORN = f"""{ALONE}
from gunicorn.app.wsgiapp import run
run()
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last release's wheel, unpacked."""
    folder = tmp_path_factory.mktemp("before")
    return releases.unpacked(releases.previous(folder / "tree"), folder)


class OldNode(Node):
    """A node with the packages of another folder."""

    code: Path

    def flask(self, *arguments: str, stdin: str = "", **environ: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", FLASK, *arguments],
            cwd=self.code,
            env={**self.environ, "PYTHONPATH": str(self.code), **environ},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *arguments: str, ready: bool = True) -> None:
        address = ("-b", f"127.0.0.1:{self.port}", "-w", str(self.workers))
        with (self.folder / "gunicorn.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", GUNICORN, "-c", CONFIGURATION, *arguments, *address],
                cwd=self.code,
                env={**self.environ, "PYTHONPATH": str(self.code)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_for(self.is_ready if ready else self.is_listening, "gunicorn")


@pytest.mark.parametrize(
    "database", [pytest.param("sqlite", marks=pytest.mark.exhaustive), "postgresql"]
)
def test_nobody_notices(
    before: Path,
    make_node: Callable[..., Any],
    database: str,
    request: pytest.FixtureRequest,
) -> None:
    """Migrate under the old program's feet, add a node of the new one, and go on with both."""
    old, new = make_node(1, OldNode), make_node(1)
    old.code = before
    if database == "postgresql":
        cluster: Postgresql = request.getfixturevalue("cluster")
        old.environ["SSO_DATABASE_URL"] = cluster.url
    old.environ["SSO_REFRESH_TOKEN_LEEWAY"] = "600"
    new.environ.update({k: v for k, v in old.environ.items() if k.startswith("SSO_")})
    old.flask("db", "upgrade")
    old.add_user(EMAIL, PASSWORD)
    client = old.register(
        "Books", CALLBACK, "--first-party", "--scope", "openid profile email offline_access"
    )
    old.start()

    addresses = [old.base_url]

    def serve(stop: Event, number: int) -> Expected:
        person = Person(old.base_url, client["client_id"], client["client_secret"])
        return Customer(person, addresses, stop, number).run()

    def customers_during(act: Callable[[], object]) -> Expected:
        stop, expected = Event(), Expected()
        with ThreadPoolExecutor(2) as threads:
            customers = [threads.submit(serve, stop, number) for number in range(2)]
            try:
                time.sleep(1)  # until statements are prepared
                act()
                time.sleep(2)
            finally:
                stop.set()
            for customer in customers:
                expected.merge(customer.result())
        return expected

    def start_the_new_one() -> None:
        new.start()
        addresses.append(f"{new.origin}/api/auth")

    during = customers_during(lambda: new.flask("db", "upgrade"))
    after = customers_during(start_the_new_one)
    assert old.readiness().ok
    in_flight = 8 if database == "postgresql" else 0  # what waited for the tables: see 0030
    assert len(during.unavailable) <= in_flight, during.seen
    assert not [name for name in during.seen if name.endswith("broken")], during.seen
    assert not [name for name in after.seen if name.endswith(("503", "broken"))], after.seen
    whole = Expected()
    whole.merge(during)
    whole.merge(after)
    app = application(new)
    person = Person(f"{new.origin}/api/auth", client["client_id"], client["client_secret"])
    found = audit(app, whole, person)
    with app.app_context():
        db.engine.dispose()
    assert found.wrong == []
    assert found.figures["refreshes seen by clients"] > 0


def test_a_start_on_an_older_schema_says_what_to_do(make_node: Callable[..., Node]) -> None:
    node = make_node(1)
    older = MIGRATIONS.get_revision("head").down_revision
    assert isinstance(older, str)
    app = application(node)
    with app.app_context():
        migrations.upgrade(revision=older)
        db.engine.dispose()
    node.start(ready=False)
    wait_for(node.is_listening, "gunicorn")
    advice = f"the schema is {older}, older than this program; run: flask db upgrade"
    wait_for(lambda: advice in node.log, "the advice")
    answer = node.readiness()
    assert (answer.status_code, answer.json()["reason"]) == (503, advice)
    node.flask("db", "upgrade")
    assert node.readiness().ok


KILLED = """
import os
from sqlalchemy import event
from sqlalchemy.engine import Engine

@event.listens_for(Engine, "before_cursor_execute")
def stop(connection, cursor, statement, *_):
    if statement.startswith("UPDATE alembic_version"):
        os._exit(9)  # as kill -9 or a power cut, after the tables were changed

from sso.wsgi import app
from sso.store import migrations
with app.app_context():
    migrations.upgrade()
"""


@pytest.mark.parametrize(
    "database", [pytest.param("sqlite", marks=pytest.mark.exhaustive), "postgresql"]
)
def test_an_interrupted_upgrade_changes_nothing(
    make_node: Callable[..., Node], database: str, request: pytest.FixtureRequest
) -> None:
    """It begins again, and the older program can serve until then."""
    node = make_node(1)
    if database == "postgresql":
        cluster: Postgresql = request.getfixturevalue("cluster")
        node.environ["SSO_DATABASE_URL"] = fresh_database(cluster.url)
    older = MIGRATIONS.get_revision("head").down_revision
    assert isinstance(older, str)
    app = application(node)
    with app.app_context():
        migrations.upgrade(revision=older)
        before = tables(db.engine)
        db.engine.dispose()
    assert node.python("-c", KILLED).returncode == 9
    with app.app_context():
        assert tables(db.engine) == before
        db.engine.dispose()
    node.flask("db", "upgrade")
    node.flask("db", "check")


def tables(engine: Engine) -> dict[str, list[str]]:
    """The columns and indexes of each table, and the schema's revision."""
    found = inspect(engine)
    described = {
        name: sorted(
            re.sub(r" at 0x\w+", "", repr(one))
            for one in (*found.get_columns(name), *found.get_indexes(name))
        )
        for name in found.get_table_names()
    }
    with engine.connect() as connection:
        return described | {"revision": [str(schema.revision(connection))]}
