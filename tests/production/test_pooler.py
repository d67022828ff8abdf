"""Behind PgBouncer in transaction mode: as with PostgreSQL itself, time limits included."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGKILL
from threading import Event
from typing import NamedTuple

import psycopg
import pytest
import requests
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sso import create_app, database
from sso.checkup import components
from sso.database import postgresql
from sso.extensions import db
from tests.operations.conftest import fresh_database
from tests.production.expected import Customer
from tests.production.people import Person
from tests.production.seeding import a_person
from tests.support.processes import SECRET_KEY, wait_for
from tests.support.servers import Node, Pgbouncer, Postgresql
from tests.support.statements import watched

NEWER = "pgbouncer-newer"


@pytest.fixture(
    scope="module", params=["pgbouncer", pytest.param(NEWER, marks=pytest.mark.exhaustive)]
)
def program(request: pytest.FixtureRequest) -> str:
    """Debian 12's PgBouncer, and beside it one that passes on prepared statements."""
    name = str(request.param)
    if name == NEWER and not shutil.which(name):
        pytest.skip(f"there is no {NEWER}; on Debian 12, .ci/run installs it")
    return name


@pytest.fixture(scope="module")
def pooler(cluster: Postgresql, stack: ExitStack, program: str) -> Pgbouncer:
    """As its package comes; but few sessions, so that workers take turns in each."""
    settings = {"default_pool_size": "4", "server_login_retry": "1"}
    if program == NEWER:
        settings["max_prepared_statements"] = "200"
    made = Pgbouncer(cluster, program, **settings)
    made.database = fresh_database(cluster.url).rpartition("/")[2]
    stack.callback(made.remove)
    made.start()
    return made


@pytest.fixture(scope="module")
def node(pooler: Pgbouncer, make_node: Callable[..., Node], program: str) -> Iterator[Node]:
    """With the newer pooler, statements are prepared."""
    query = "?prepare_threshold=5" if program == NEWER else ""
    made = make_node(2, SSO_DATABASE_URL=pooler.url + query, SSO_REFRESH_TOKEN_LEEWAY="600")
    made.flask("db", "upgrade")
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def known(node: Node) -> Person:
    return a_person(node)


@pytest.fixture
def person(known: Person) -> Person:
    return Person(known.base_url, known.client_id, known.client_secret)


def plain(cluster: Postgresql) -> str:
    return cluster.url.replace("+psycopg", "")


def test_a_person_comes_and_goes(node: Node, person: Person) -> None:
    tokens = person.exchange(person.authorize()).json()
    tokens = person.refresh(tokens["refresh_token"]).json()
    assert person.userinfo(tokens["access_token"]).json()["email"] == person.email
    assert person.post("/oauth2/revoke", token=tokens["refresh_token"]).ok
    assert person.userinfo(tokens["access_token"]).status_code == 401

    url = f"{node.base_url}/oauth2/end-session"
    assert person.browser.get(url, params={"id_token_hint": tokens["id_token"]}, timeout=20).ok
    with pytest.raises(AssertionError, match="error=login_required"):
        person.authorize(prompt="none")


def test_many_at_once(node: Node, known: Person, pooler: Pgbouncer, program: str) -> None:
    """Every transaction is in another session; nothing prepared or set is missed."""
    stop = Event()
    with ThreadPoolExecutor(6) as pool:
        customers = [
            Customer(
                Person(known.base_url, known.client_id, known.client_secret),
                [node.base_url],
                stop,
                number,
            )
            for number in range(6)
        ]
        working = [pool.submit(customer.run) for customer in customers]
        try:
            wait_for(lambda: sum(c.expected.seen.total() for c in customers) > 300, "requests")
        finally:
            stop.set()
        seen: Counter[str] = Counter()
        for one in working:
            seen += one.result().seen
            assert one.result().faults == []
    assert not [what for what in seen if "503" in what], seen
    assert "500" not in " ".join(seen)
    assert "unexpected error" not in node.log
    with psycopg.connect(pooler.url) as behind:
        prepared = behind.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert (prepared != (0,)) == (program == NEWER)


def test_of_many_only_one_is_served(person: Person) -> None:
    def eight(act: Callable[[str], requests.Response], once: str) -> list[requests.Response]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(act, [once] * 8))

    exchanged = eight(person.exchange, person.authorize())
    assert Counter(one.status_code for one in exchanged) == {200: 1, 400: 7}
    once = person.exchange(person.authorize()).json()["refresh_token"]
    refreshed = eight(person.refresh, once)
    assert {one.status_code for one in refreshed} == {200}  # within the leeway: the same successor
    assert len({one.json()["refresh_token"] for one in refreshed}) == 1


def test_background_work_and_commands(node: Node, person: Person) -> None:
    found = findings(node)
    assert found["pooler"] == {"status": "ok", "seen": components.POOLED, "hint": None}
    assert found["code flow"]["status"] == "ok", found
    token = person.exchange(person.authorize()).json()["access_token"]
    commands = [["key", "rotate", "--force"], ["worker", "--once"], *[["db", "upgrade"]] * 2]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda command: node.flask(*command), commands))
    assert person.userinfo(token).ok


def findings(node: Node, **environ: str) -> dict[str, dict[str, str | None]]:
    report = json.loads(node.try_flask("doctor", "--json", **environ).stdout)
    return {one.pop("name"): one for one in report["findings"]}


def test_time_limits_hold(
    node: Node, cluster: Postgresql, pooler: Pgbouncer, person: Person
) -> None:
    code = person.authorize()
    with psycopg.connect(pooler.url.replace(str(pooler.port), str(cluster.port))) as admin:
        admin.execute("LOCK TABLE authorization_codes")
        answer = person.exchange(code)
        assert (answer.status_code, bool(answer.headers["Retry-After"])) == (503, True)
    assert person.exchange(code).status_code == 200


def test_pooler_and_database_restart(node: Node, pooler: Pgbouncer, person: Person) -> None:
    token = person.exchange(person.authorize()).json()["access_token"]
    pooler.stop(SIGKILL)
    answer = person.userinfo(token)
    assert (answer.status_code, bool(answer.headers["Retry-After"])) == (503, True)
    pooler.start()
    wait_for(node.is_ready, "the pooler")
    assert person.userinfo(token).ok
    pooler.cluster.stop()
    pooler.cluster.start()
    # PgBouncer finds out that its connections are gone when it uses them.
    wait_for(lambda: person.userinfo(token).ok, "PostgreSQL", 10)
    assert person.exchange(person.authorize()).ok


IGNORING = {"ignore_startup_parameters": "options"}


@contextmanager
def in_front_of(cluster: Postgresql, program: str, **settings: str) -> Iterator[str]:
    """The URL of another pooler."""
    made = Pgbouncer(cluster, program, **settings)
    made.start()
    try:
        yield made.url
    finally:
        made.remove()


class Seen(NamedTuple):
    is_pooled: bool
    of_session: dict[str, str]
    of_reader: dict[str, str]
    statements: int  # beside those that ask for the limits
    kept: int  # connections that stay out of the pool afterwards


def seen(url: str, folder: Path) -> Seen:
    """What the application finds at this URL."""
    app = create_app({"SSO_DATABASE_URL": url, "SSO_SECRET_KEY": SECRET_KEY}, folder)
    with app.app_context():
        db.session.connection()  # the first of an engine asks for PostgreSQL's version
        db.session.remove()
        statements: list[str] = []
        with watched(db.engine, lambda s, _: statements.append(s)), database.connection() as reader:
            both = [db.session.connection(), reader]
            (pooled,) = {postgresql.is_pooled(one) for one in both}
            limits = [{n: c.scalar(text(f"SHOW {n}")) for n in postgresql.LIMITS} for c in both]
        db.session.remove()
        kept = app.extensions["sso.kept_connections"].idle
        db.engine.dispose()
    return Seen(pooled, limits[0], limits[1], len(statements) - 2 * len(postgresql.LIMITS), kept)


@pytest.mark.parametrize(
    ("settings", "query"),
    [
        ({}, ""),
        (IGNORING, ""),
        ({}, "?pgbouncer=true"),
        ({"pool_mode": "session"}, ""),
        (IGNORING, "?options=-c%20jit%3Doff"),
    ],
)
def test_any_pooler_is_found(
    cluster: Postgresql, program: str, tmp_path: Path, settings: dict[str, str], query: str
) -> None:
    with in_front_of(cluster, program, **settings) as url:
        assert seen(url + query, tmp_path) == (True, postgresql.LIMITS, postgresql.LIMITS, 2, 0)
        # They are not left behind for other clients.
        with psycopg.connect(url, autocommit=True) as other:
            assert other.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_a_direct_connection_costs_no_statement(cluster: Postgresql, tmp_path: Path) -> None:
    found = seen(cluster.url, tmp_path)
    assert found == (False, postgresql.LIMITS, postgresql.LIMITS, 0, 1)


def test_limits_of_the_role_cost_no_statement(cluster: Postgresql, tmp_path: Path) -> None:
    limits = dict.fromkeys(postgresql.LIMITS, "7s")
    with psycopg.connect(plain(cluster), autocommit=True) as admin:
        admin.execute("CREATE ROLE limited LOGIN")
        for name, value in limits.items():
            admin.execute(f"ALTER ROLE limited SET {name} = '{value}'".encode())
    with in_front_of(cluster, "pgbouncer", user="limited") as url:
        url = url.replace("//postgres@", "//limited@")
        assert seen(url, tmp_path) == (True, limits, limits, 0, 0)


def test_a_pooler_that_goes_unnoticed_is_noticed_later(cluster: Postgresql, tmp_path: Path) -> None:
    """One that would pass on everything: one day the session lacks what was prepared."""
    app = create_app({"SSO_DATABASE_URL": cluster.url, "SSO_SECRET_KEY": SECRET_KEY}, tmp_path)
    statement = text("SELECT 1")
    with app.app_context():
        with db.engine.connect() as connection:
            for _ in range(8):
                connection.execute(statement)
            connection.exec_driver_sql("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
            connection.commit()
            with pytest.raises(DBAPIError) as caught:
                connection.execute(statement)
        assert postgresql.transient_reason(caught.value)  # 503
        with db.engine.connect() as connection:
            assert postgresql.is_pooled(connection)
            for _ in range(8):
                connection.execute(statement)
        db.engine.dispose()


def test_what_breaks_is_explained(
    cluster: Postgresql, node: Node, pooler: Pgbouncer, program: str
) -> None:
    with in_front_of(cluster, program, pool_mode="statement") as url:
        found = findings(node, SSO_DATABASE_URL=url)["database"]
        assert (found["status"], "pool_mode = transaction" in str(found["hint"])) == (
            "wrong",
            True,
        ), found
    options = "?options=-c%20search_path%3Dpublic"
    found = findings(node, SSO_DATABASE_URL=pooler.url + options)["database"]
    assert (found["status"], "ALTER ROLE" in str(found["hint"])) == ("wrong", True)
    with in_front_of(cluster, program, **IGNORING) as url:
        found = findings(node, SSO_DATABASE_URL=url + options)["pooler"]
        assert (found["status"], "ALTER ROLE" in str(found["hint"])) == ("warning", True)
