"""`python -m tests.bench`: measures the scenarios on this machine."""

import argparse
import contextlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from flask import Flask
from joserfc.jwk import KeySet

from sso import create_app
from sso.crypto import secrets
from sso.extensions import db
from sso.observability import logs
from sso.store import clients, migrations
from tests.bench import baseline, processes, report, seed
from tests.bench.scenarios import BARE, BASE, SCENARIOS, World
from tests.bench.transport import Request, in_process, over_connections
from tests.support.actors import Browser, pkce
from tests.support.factories import ensure_keys, register_client
from tests.support.processes import end_when_asked
from tests.support.servers import postgresql
from tests.support.signing import ASSERTION_TYPE, make_fapi_client

CLIENT = "Benchmark"
REDIRECT_URI = "https://app.bench.example/callback"
PEOPLE = 128  # codes of one user beyond 300 (see store.unredeemed) would cost more
BARE_ROUTE = ("-c", "python:tests.bench.bare_gunicorn")


def main() -> None:
    options = _options()
    end_when_asked()
    quiet()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        root = Path(folder)
        url = options.database_url
        if url is None and options.database == "postgresql":
            url = stack.enter_context(postgresql())
        found = _measure(root, url, options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    print(report.table(found, options.all))


def quiet() -> None:
    """The log is written as by a server, but it is not to be read here."""
    nowhere = logging.FileHandler(os.devnull)
    nowhere.setFormatter(logs.TextFormatter(logs.TEXT))
    logging.getLogger().addHandler(nowhere)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--database-url", help="an empty or once seeded database, to be kept")
    parser.add_argument("--seed-rows", type=int, default=1000, help="users; ten tokens for each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=400, help="per scenario and round")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2, help="gunicorn's")
    parser.add_argument("--all", action="store_true", help="print every scenario")
    parser.add_argument("--json", type=Path, help="also write the figures into this file")
    return parser.parse_args()


def _measure(root: Path, url: str | None, options: argparse.Namespace) -> dict[str, Any]:
    (root / "bare").mkdir()
    database = {"SSO_DATABASE_URL": url} if url else {}
    server = processes.MeasuredServer(
        root, workers=options.workers, SSO_AUTHORIZATION_CODE_LIFETIME="600", **database
    )
    bare = processes.MeasuredServer(root / "bare", workers=options.workers)
    settings = {name: value for name, value in server.environ.items() if name.startswith("SSO_")}
    app = create_app(settings, root)
    world = make_world(app, server.base_url, options.seed_rows)
    statements = baseline.statements(app, world)  # before sessions are so old as to be prolonged
    measured = {scenario.name: report.Measured() for scenario in SCENARIOS}
    with contextlib.ExitStack() as servers:
        with one_core():
            servers.enter_context(server.serving())
            servers.enter_context(bare.serving(*BARE_ROUTE))
        at_start = processes.memory(processes.tree(server.pid))
        for number in range(options.rounds + 1):
            for scenario in SCENARIOS:
                target = bare if scenario is BARE else server
                requests = scenario.make(world, options.requests)
                pids = processes.tree(target.pid)
                cpu, begin = processes.cpu_seconds(pids), time.perf_counter()
                answers = over_connections(target.port, options.connections, requests)
                wall = time.perf_counter() - begin
                cpu = processes.cpu_seconds(pids) - cpu
                scenario.check(world, answers)
                if number:  # the first round warms up
                    measured[scenario.name].add(answers, wall, cpu)
            _say(f"round {number} of {options.rounds}")
        memory = processes.memory(processes.tree(server.pid))
    inside = baseline.cpu(app, world, options.rounds, options.requests // 2)
    parts = baseline.parts(app, world.client_id, options.requests)
    return {
        "database": "PostgreSQL" if url else "SQLite",
        **{name: getattr(options, name) for name in ("seed_rows", "rounds", "requests", "workers")},
        "noise": measured[BARE.name].noise,
        "gunicorn": {name: rounds.figures() for name, rounds in measured.items()},
        "in_process_cpu_ms": inside,
        "baseline_cpu_ms": parts,
        "statements": statements,
        "ratios": report.ratios(inside),
        "memory_mb": {"at start": at_start / 1e6, "after the load": memory / 1e6},
    }


def make_world(app: Flask, issuer: str, rows: int) -> World:
    """A seeded database, its client, and some of its people, signed in by the form."""
    with app.app_context():
        migrations.upgrade()
        ensure_keys(app.config["SECRET_KEY"])
        client_id, secret, is_new = _client()
    if is_new:
        seed.fill(app, client_id, rows, _say)
    keys = KeySet.import_key_set(app.test_client().get(f"{BASE}/oauth2/jwks").get_json())
    world = World(issuer, client_id, secret, REDIRECT_URI, keys, {})
    world.bank = _bank(app, world)
    for number in Random(7).sample(range(rows), min(PEOPLE, rows)):
        browser = Browser(app)
        browser.sign_in(seed.email(number), seed.PASSWORD)
        cookie = browser.http.get_cookie("sso_browser", "127.0.0.1", BASE)
        assert cookie is not None, browser.page
        world.cookies[seed.user_id(number)] = f"sso_browser={cookie.value}"
    anonymous = Request("GET", world.authorization("state", "nonce", pkce()[1]))
    world.resume = in_process(app, [anonymous])[0].headers["location"]
    return world


def _bank(app: Flask, world: World) -> World:
    """The same world, with another client, which has a key instead of a secret."""
    party = make_fapi_client(app, redirect_uris=[REDIRECT_URI], first_party=True)

    def assertion() -> dict[str, str]:
        signed = party.assertion(aud=world.issuer)
        return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": signed}

    return replace(world, client_id=party.client_id, assertion=assertion, alg="ES256")


def _client() -> tuple[str, str, bool]:
    """The benchmark's client with a fresh secret, and whether it is new."""
    known = next((client for client in clients.every() if client.name == CLIENT), None)
    if known is None:
        client, secret = register_client(name=CLIENT, redirect_uris=[REDIRECT_URI])
    else:
        client, secret = known, secrets.make_secret(secrets.CLIENT_SECRET)
        clients.replace_secret(known, secrets.digest(secret), None)
    db.session.commit()
    return client.client_id, secret, known is None


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """What is started inside runs on one core, and leaves the others to this program."""
    cores = os.sched_getaffinity(0)
    one = min(cores)
    os.sched_setaffinity(0, {one})
    yield
    os.sched_setaffinity(0, cores)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
