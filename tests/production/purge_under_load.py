"""Purge many expired rows while requests go on, and tell what both of them felt.

python -m tests.production.purge_under_load --database postgresql --rows 1000000
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID, uuid4

from flask import Flask
from sqlalchemy import func, insert, select

from sso import clock
from sso.extensions import db
from sso.models import AuthorizationCode, BrowserSession, Grant, Token, User
from tests.production.expected import Customer, Expected
from tests.production.people import Person
from tests.production.seeding import a_person, application, migrate
from tests.support.processes import end_when_asked
from tests.support.servers import Node, Postgresql

TABLES = (Token, AuthorizationCode, Grant, BrowserSession)


def fill(app: Flask, client_id: str, rows: int) -> None:
    """So many expired rows: each sign-in long ago left a session, a grant, a code, two tokens."""
    with app.app_context():
        user_id = db.session.scalar(select(User.id).limit(1))
        assert user_id
        for numbers in batched_range(rows // 5, 2000):
            made = [_long_ago(number, user_id, client_id) for number in numbers]
            for table in reversed(TABLES):
                db.session.execute(insert(table), [r for one in made for r in one[table]])
            db.session.commit()
        db.session.remove()
        db.engine.dispose()


def batched_range(count: int, size: int) -> Any:
    return (range(begin, min(begin + size, count)) for begin in range(0, count, size))


def _long_ago(number: int, user_id: UUID, client_id: str) -> dict[type, list[dict[str, Any]]]:
    then = clock.now() - timedelta(days=60, seconds=number)
    soon = then + timedelta(hours=1)
    session, grant, mark = uuid4(), uuid4(), f"sha256:old-{number}"
    shared = {"user_id": user_id, "auth_time": then, "amr": "pwd"}
    token = {"grant_id": grant, "scope": "openid", "issued_at": then, "expires_at": soon}
    return {
        BrowserSession: [
            {"id": session, "digest": mark, "acr": "1", "expires_at": soon, **shared}
        ],
        Grant: [
            {
                **shared, "id": grant, "client_id": client_id, "session_id": session,
                "sid": str(session), "scope": "openid", "created_at": then,
            }
        ],
        AuthorizationCode: [
            {
                "digest": mark, "grant_id": grant, "redirect_uri": "https://old.example/",
                "expires_at": soon, "used_at": then,
            }
        ],
        Token: [
            {
                **token, "jti": f"old-{number}-{n}", "refresh_digest": f"{mark}-{n}",
                "refresh_expires_at": soon, "refresh_used_at": then if n == 0 else None,
            }
            for n in range(2)
        ],
    }  # fmt: skip


def count(app: Flask) -> int:
    with app.app_context():
        found = sum(db.session.scalar(select(func.count()).select_from(t)) or 0 for t in TABLES)
        db.engine.dispose()
    return found


def run(database: str, rows: int, folder: Path, before: float) -> dict[str, Any]:
    """Serve for `before` seconds, then purge while serving on; gives the figures."""
    with ExitStack() as stack:
        environ = {"SSO_REFRESH_TOKEN_LEEWAY": "600"}
        if database == "postgresql":
            cluster = Postgresql(fsync="off")
            stack.callback(cluster.remove)
            cluster.start()
            environ["SSO_DATABASE_URL"] = cluster.url
        node = Node(folder, 2, **environ)
        stack.callback(node.stop)
        migrate(node)
        known = a_person(node)
        app = application(node)
        fill(app, known.client_id, rows)
        node.start()

        stop, expectations = Event(), []
        address = [node.base_url]

        def serve(number: int) -> None:
            person = Person(known.base_url, known.client_id, known.client_secret)
            expectations.append(Customer(person, address, stop, number).run())

        threads = [Thread(target=serve, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(before)
        began = time.monotonic()
        try:
            told = node.flask("purge", "--json")
            ended = time.monotonic()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        whole = Expected()
        for expected in expectations:
            whole.merge(expected)
        left = count(app)
        seen = sum(len(family.tokens) + 3 for family in whole.families)
        return {
            "purged": told.strip(),
            "seconds": ended - began,
            "rows_left": left,
            "rows_made_meanwhile_at_most": seen + 100,
            "faults": whole.faults,
            "without": percentiles([took for at, took in whole.latencies if at < began]),
            "during": percentiles([took for at, took in whole.latencies if began <= at < ended]),
        }


def percentiles(values: list[float]) -> str:
    ordered = sorted(values)
    if not ordered:
        return "no requests"
    shown = {
        "p50": ordered[len(ordered) // 2],
        "p95": ordered[len(ordered) * 95 // 100],
        "p99": ordered[len(ordered) * 99 // 100],
        "max": ordered[-1],
    }
    figures = ", ".join(f"{name} {value * 1000:.0f} ms" for name, value in shown.items())
    return f"{len(ordered)} requests: {figures}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--before", type=float, default=20, help="seconds of service without purge")
    given = parser.parse_args()
    end_when_asked()
    with tempfile.TemporaryDirectory() as folder:
        figures = run(given.database, given.rows, Path(folder), given.before)
    print(f"{given.database}, {given.rows} expired rows")
    for name, value in figures.items():
        print(f"{name}: {value}")
    sys.exit(bool(figures["faults"]))


if __name__ == "__main__":
    main()
