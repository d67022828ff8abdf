"""What a server takes before anybody uses it."""

import json
import time
from pathlib import Path

import pytest
from flask import Flask

from sso import clock
from sso.config.upstream.file import Upstreams
from sso.extensions import db
from sso.models import Passkey, User
from sso.server import common
from tests.bench.processes import MeasuredServer, memory, tree
from tests.operations.conftest import fresh_database
from tests.support.processes import Server, wait_for
from tests.support.upstreams import provider

WORKERS = 2
MOST = {"SQLite": 116, "PostgreSQL": 128}  # MB of the master and its workers (PSS)
# What few installations use.
RARE = {
    "limits", "prometheus_client", "requests", "segno", "sso.checkup", "sso.explain",
    "sso.metrics.exporter", "sso.presets.preset_file", "sso.scim.handler", "sso.upstream.http",
    "webauthn", "zxcvbn_rs_py",
}  # fmt: skip


@pytest.mark.parametrize("database", MOST)
def test_a_server_starts_small(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("this system does not say what a process takes")
    settings = {}
    if database == "PostgreSQL":
        settings["SSO_DATABASE_URL"] = fresh_database(request.getfixturevalue("cluster"))
    server = MeasuredServer(tmp_path, workers=WORKERS, **settings)
    for name in [name for name in server.environ if name.startswith("COVERAGE_")]:
        del server.environ[name]  # measured as people run it
    with server.running():
        wait_for(lambda: len(tree(server.pid)) == 1 + WORKERS, "each worker")
        assert settled(server) < MOST[database]


def settled(server: MeasuredServer) -> float:
    """Megabytes, when they no longer change."""
    before = 0.0
    for _ in range(40):
        time.sleep(0.25)
        now = memory(tree(server.pid)) / 1e6
        if abs(now - before) < 0.1:
            return now
        before = now
    raise AssertionError(f"it still grows: {now:.1f} MB")


def test_what_is_rarely_used_is_not_imported(tmp_path: Path) -> None:
    code = "import json, sys, sso.wsgi, sso.server.gunicorn_conf; print(json.dumps([*sys.modules]))"
    found = set(json.loads(Server(tmp_path).python("-c", code).stdout))
    assert "sso.endpoints.account" in found
    assert not found & RARE


def test_what_is_used_is_imported_before_the_workers_begin(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[str] = []
    monkeypatch.setattr(common, "import_module", imported.append)
    common.loaded(app)
    assert imported == []
    app.extensions["sso.upstreams"] = Upstreams([provider()])
    with app.app_context():
        key = Passkey(
            user_id=user.id, name="key", credential_id="x", public_key="x", created_at=clock.now()
        )
        db.session.add(key)
        db.session.commit()
    common.loaded(app)
    assert imported == ["sso.upstream.oidc", "webauthn"]
