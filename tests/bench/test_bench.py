"""The benchmark runs, and what can be counted keeps to its aims. Times are not tested."""

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import create_engine, func, make_url, select, text

from sso import create_app
from sso.extensions import db
from sso.models import Token
from sso.store import migrations
from tests.bench import lists, report, seed, servers
from tests.bench.scenarios import SCENARIOS
from tests.support.factories import register_client
from tests.support.processes import ROOT, SECRET_KEY

# Statements and commits of one request, at the most.
AIMS = {
    "authorize": (3, 1),
    "code exchange": (3, 1),
    "refresh": (3, 1),
    "userinfo": (1, 0),
    "sign-in page": (2, 0),  # the client, and whether it has a logo
    "push": (2, 1),
    "authorize, pushed": (5, 1),
    "code exchange, DPoP": (4, 1),
    "refresh, DPoP": (4, 1),
    "userinfo, DPoP": (2, 1),
    # An assertion is verified before, in a transaction of its own: the client, and its identifier.
    "push, fapi2": (4, 2),
    "authorize, fapi2": (5, 1),
    "code exchange, fapi2": (6, 2),
}


@pytest.mark.slow
def test_seeding_may_take_longer_than_a_request(postgresql_url: str, tmp_path: Path) -> None:
    """Under load, a hundred thousand rows take longer than the limit of a statement."""
    server = create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    url = make_url(postgresql_url).set(database="seeded")
    with server.connect() as connection:
        connection.execute(text("CREATE DATABASE seeded"))
    server.dispose()
    for limit in ("15s", "30ms"):
        limited = url.update_query_dict({"options": f"-c statement_timeout={limit}"})
        database = limited.render_as_string(hide_password=False)
        app = create_app({"SSO_SECRET_KEY": SECRET_KEY, "SSO_DATABASE_URL": database}, tmp_path)
        with app.app_context():
            if limit == "15s":
                migrations.upgrade()
                client, _ = register_client(name="A", redirect_uris=["https://a.example/"])
                client_id = client.client_id
                db.session.commit()
            else:
                seed.fill(app, client_id, 1000, print)
                assert db.session.scalar(select(func.count()).select_from(Token)) == 10_000
            db.session.remove()
            db.engine.dispose()


@pytest.mark.slow
def test_the_lists_are_measured(tmp_path: Path) -> None:
    app = create_app({"SSO_SECRET_KEY": SECRET_KEY}, tmp_path)
    browser = lists.make_world(app, 60)
    for path in lists.paths(browser).values():
        assert len(lists.measured(browser, path, 1)) == 1


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_servers_are_measured(tmp_path: Path) -> None:
    kinds, world = servers.make(tmp_path, 8, {})
    with ExitStack() as stack:
        for server in kinds:
            stack.enter_context(server.serving())
        lines = servers.measure(kinds, world, rounds=1, count=8).splitlines()
    assert lines[0] == "| CPU ms | gunicorn | granian | ratio |"
    assert len(lines) == 2 + len(servers.SCENARIOS) + 2


@pytest.mark.exhaustive
def test_the_benchmark_runs(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    small = ["--rounds", "1", "--requests", "16", "--seed-rows", "20", "--json", str(figures)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--all", *small],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if "|" in line]
    for scenario in SCENARIOS:
        assert found["gunicorn"][scenario.name]["per_second"] > 0
        assert scenario.name in rows
    short = [line.split("|")[1].strip() for line in report.table(found, False).splitlines()[:8]]
    assert short[2:] == [*rows[2:7], rows[-1]]
    assert 50 < found["memory_mb"]["at start"] < found["memory_mb"]["after the load"] < 500
    for name, (statements, commits) in AIMS.items():
        # The key ring is read again every ten seconds: once in the twenty requests that count.
        assert found["statements"][name][0] <= statements + 0.05
        assert found["statements"][name][1] <= commits


@pytest.mark.exhaustive
def test_forward_auth_is_measured() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.forward", "--rounds", "1", "--requests", "20"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\| forward auth, sqlite \| [\d.]+ \| \d+ \|$", done.stdout, re.MULTILINE)
