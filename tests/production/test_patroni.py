"""Patroni promotes the standby under load: nothing lost, nothing twice, 503 for a moment."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import psycopg
import pytest

from tests.production.audit import audit
from tests.production.expected import Customer, Expected
from tests.production.people import Person
from tests.production.seeding import a_person, application, migrate
from tests.support.patroni import Etcd, PatroniNode
from tests.support.processes import wait_for
from tests.support.servers import Node

CUSTOMERS = 4


@pytest.fixture
def pair(folder: Path, stack: ExitStack) -> tuple[PatroniNode, PatroniNode]:
    """A primary, and a standby that has every commit before it is answered."""
    etcd = Etcd(folder / "etcd")
    stack.callback(etcd.stop)
    etcd.start()
    primary, standby = (PatroniNode(name, etcd) for name in ("one", "two"))
    for one in (primary, standby):
        stack.callback(one.remove)
        one.start()
    wait_for(lambda: standby.is_("synchronous"), "the standby")
    return primary, standby


def takes_writes(server: PatroniNode) -> bool:
    try:
        url = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
        with psycopg.connect(url, connect_timeout=2) as connection:
            return connection.execute("SHOW transaction_read_only").fetchone() == ("off",)
    except psycopg.Error:
        return False


@pytest.mark.exhaustive
def test_the_primary_fails(
    pair: tuple[PatroniNode, PatroniNode], make_node: Callable[..., Node]
) -> None:
    primary, standby = pair
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in pair)
    node = make_node(
        2,
        SSO_DATABASE_URL=f"postgres://postgres@{hosts}/postgres",
        SSO_REFRESH_TOKEN_LEEWAY="600",  # a retry may come late
    )
    migrate(node)
    known = a_person(node)
    node.start()
    stop, expected = Event(), Expected()
    customers = [
        Customer(
            Person(known.base_url, known.client_id, known.client_secret),
            [node.base_url],
            stop,
            number,
        )
        for number in range(CUSTOMERS)
    ]

    def served() -> int:
        return sum(one.expected.seen["exchange 200"] for one in customers)

    with ThreadPoolExecutor(CUSTOMERS) as pool:
        working = [pool.submit(one.run) for one in customers]
        try:
            wait_for(lambda: served() > 40, "customers")
            primary.stop_replicating()
            stop.wait(0.5)
            primary.fail()
            wait_for(lambda: takes_writes(standby), "the new primary", 60)
            promoted, before = time.monotonic(), served()
            wait_for(lambda: served() > before + 40, "customers")
        finally:
            stop.set()
        for one in working:
            expected.merge(one.result())

    found = audit(application(node), expected, known)
    assert found.wrong == []
    assert found.figures["refreshes seen by clients"] > 0
    assert [what for what in expected.seen if "broken" in what] == []
    assert expected.unavailable
    assert max(expected.unavailable) - promoted < 10
    assert "unexpected error" not in node.log
