"""`python -m tests.bench.lists`: how long lists of the administration take with many people."""

import argparse
import contextlib
import logging
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

from flask import Flask
from sqlalchemy import Select, select

from sso import create_app
from sso.extensions import db
from sso.models import AuditEvent
from sso.store import migrations, users
from sso.store.lists import Order
from tests.bench import seed
from tests.support.administration import ADMIN, StaffBrowser, sign_in_staff
from tests.support.factories import ensure_keys
from tests.support.processes import SECRET_KEY
from tests.support.servers import postgresql

LISTS = {
    "people, first page": "people",
    "people, a page in the middle": "{middle}",
    "people, last page": "people?page={last}",
    "people, by name": "people?sort=name",
    "people, active": "people?state=active",
    "people, with a second factor": "people?state=factor",
    "people, beginning of the email": "people?q=user7777",
    "people, beginning of the name": "people?q=family+person+7777",
    "people, disabled": "people?state=disabled",
    "people, not verified": "people?state=unverified",
    "people, in a group": "people?group=board",
    "people, in a group of nobody": "people?group=nobody",
    "people, in a group, beginning of the name": "people?group=board&q=family+person+7",
    "people, in a group, disabled": "people?group=board&state=disabled",
    "people, anywhere in the name": "people?q=person+77777&anywhere=1",
    "a person": "person?id={person}",
    "audit trail, first page": "audit",
    "audit trail, a page in the middle": "{middle_of_audit}",
    "audit trail, last page": "audit?page={last_of_audit}",
    "audit trail of a person": "audit?who={person}",
    "audit trail, an event that is rare": "audit?event=user_deleted",
    "groups": "groups",
    "sessions": "sessions",
    "applications": "applications",
    "emails": "emails",
    "overview": "",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lists", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=40, help="of each list")
    options = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        environ = {"SSO_SECRET_KEY": SECRET_KEY}
        if options.database == "postgresql":
            environ["SSO_DATABASE_URL"] = stack.enter_context(postgresql())
        app = create_app(environ, Path(folder))
        browser = make_world(app, options.people)
        print(f"| {options.database}, {options.people:,} people | p50 ms | p95 ms |\n|---|---|---|")
        for name, path in paths(browser).items():
            times = measured(browser, path, options.requests)
            percent = quantiles(times, n=100)
            print(f"| {name} | {1000 * percent[49]:.1f} | {1000 * percent[94]:.1f} |")
        with app.app_context():
            db.session.remove()
            db.engine.dispose()


def make_world(app: Flask, people: int) -> StaffBrowser:
    """So many people, an event for each, and a group of a thousandth of them."""
    with app.app_context():
        migrations.upgrade()
        ensure_keys(SECRET_KEY)
    seed.people(app, people, lambda line: print(line, file=sys.stderr))
    return sign_in_staff(app)


def paths(browser: StaffBrowser) -> dict[str, str]:
    """The path of each list."""
    with browser.http.application.app_context():
        newest = Order((AuditEvent.at, AuditEvent.id), is_descending=True)
        last = _last_page(users.BY_EMAIL, users.with_email(""))
        last_of_audit = _last_page(newest, select(AuditEvent))
    found = {
        "last": last,
        "last_of_audit": last_of_audit,
        "person": seed.user_id(7),
        "middle": _second_page(browser, "people?q=user5").partition("/admin/")[2],
        "middle_of_audit": _second_page(browser, "audit").partition("/admin/")[2],
    }
    return {name: path.format(**found) for name, path in LISTS.items()}


def measured(browser: StaffBrowser, path: str, count: int) -> list[float]:
    """The seconds that each request took; the first one is left out."""
    times = []
    for _ in range(count + 1):
        begin = time.perf_counter()
        page = browser.open(f"{ADMIN}/{path}".rstrip("/"))
        times.append(time.perf_counter() - begin)
        assert page.status == 200, page
    return times[1:]


def _last_page(order: Order, statement: Select[Any]) -> str:
    """Return the cursor of the last rows of a list."""
    return order.cursor(order.reversed.page(statement, None).rows[-1])


def _second_page(browser: StaffBrowser, path: str) -> str:
    html = browser.open(f"{ADMIN}/{path}").html
    url = html.partition('rel="next" href="')[2].partition('"')[0]
    return url.replace("&amp;", "&") or f"/admin/{path}"


if __name__ == "__main__":
    main()
