"""A standby takes over: 503 for a moment, and then the other server, without a restart of ours."""

import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from signal import SIGQUIT

import psycopg
import pytest
import requests
from sqlalchemy import text
from sqlalchemy.pool import NullPool

from sso import database
from sso.config.connections import checked_database_url
from tests.production.people import Person, Unfinished
from tests.production.seeding import a_person, migrate
from tests.support.servers import Node, Postgresql

WORKERS = 2


@pytest.fixture(scope="module")
def standby(cluster: Postgresql, stack: ExitStack) -> Postgresql:
    return follow(cluster, stack)


def follow(primary: Postgresql, stack: ExitStack) -> Postgresql:
    made = Postgresql(standby_of=primary, fsync="off")
    stack.callback(made.remove)
    made.start()
    return made


@pytest.fixture(scope="module")
def node(cluster: Postgresql, standby: Postgresql, make_node: Callable[..., Node]) -> Node:
    # The standby comes first: it answers, and is passed over.
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in (standby, cluster))
    node = make_node(WORKERS, SSO_DATABASE_URL=f"postgres://postgres@{hosts}/postgres")
    migrate(node)
    node.start()
    return node


@pytest.fixture(scope="module")
def person(node: Node) -> Person:
    return a_person(node)


def authorize(person: Person) -> requests.Response | str:
    """A code, or the answer that is none."""
    try:
        return person.authorize()
    except Unfinished as unfinished:
        return unfinished.answer


def test_standbys_take_over(
    node: Node, cluster: Postgresql, standby: Postgresql, person: Person, stack: ExitStack
) -> None:
    fill_pools(person)
    cluster.stop(SIGQUIT)  # its machine fails
    answer = authorize(person)
    assert isinstance(answer, requests.Response)
    assert (answer.status_code, bool(answer.headers["Retry-After"])) == (503, True)
    assert node.readiness().status_code == 503
    standby.promote()
    assert node.readiness().ok
    assert person.exchange(person.authorize()).ok

    # A planned switch: the primary takes no writes any more, but keeps its connections.
    other = Postgresql(standby_of=standby, fsync="off")
    stack.callback(other.remove)
    other.port = cluster.port
    other.start()
    fill_pools(person)
    with psycopg.connect(standby.url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
    others = [Person(person.base_url, person.client_id, person.client_secret) for _ in range(32)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(authorize, others))
    for answer in answers:
        assert isinstance(answer, requests.Response)
        assert (answer.status_code, bool(answer.headers["Retry-After"])) == (503, True)
    other.promote()
    for _ in range(10):
        assert person.exchange(person.authorize()).ok
    assert node.readiness().ok
    assert "unexpected error" not in node.log


def test_a_host_that_is_gone_is_waited_for_once(cluster: Postgresql) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        gone = silent.getsockname()[1]
        url = checked_database_url(
            f"postgres://postgres@127.0.0.1:{gone},127.0.0.1:{cluster.port}/postgres"
        )
        engine = database.open_engine(url, poolclass=NullPool)
        took = []
        for _ in range(2):
            began = time.monotonic()
            with engine.connect() as connection:
                assert connection.scalar(text("SELECT 1")) == 1
            took.append(time.monotonic() - began)
    assert took[0] > 1 > took[1]


def fill_pools(person: Person) -> None:
    token = person.exchange(person.authorize()).json()["access_token"]
    with ThreadPoolExecutor(16) as pool:
        asked = pool.map(lambda _: person.userinfo(token).status_code, range(64))
        assert Counter(asked) == {200: 64}
