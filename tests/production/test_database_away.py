"""A database that goes away: 503 with Retry-After, and recovery by itself."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import requests

from tests.production.people import Person, Unfinished
from tests.production.seeding import a_person, migrate
from tests.support.processes import wait_for
from tests.support.servers import Node, Postgresql

WORKERS = 2


@pytest.fixture(scope="module")
def node(cluster: Postgresql, make_node: Callable[..., Node]) -> Node:
    node = make_node(WORKERS, SSO_DATABASE_URL=cluster.url)
    migrate(node)
    node.start()
    return node


@pytest.fixture(scope="module")
def known(node: Node) -> Person:
    return a_person(node)


@pytest.fixture
def person(known: Person) -> Person:
    """A new browser each time."""
    return another(known)


def another(person: Person) -> Person:
    return Person(person.base_url, person.client_id, person.client_secret)


def every_address(node: Node, person: Person, token: str) -> dict[str, requests.Response]:
    """An answer of each kind: page for somebody unknown and signed in, JSON, bearer."""
    pages = {}
    for name, visitor in (("stranger", another(person)), ("signed in", person)):
        with pytest.raises(Unfinished) as page:
            visitor.authorize()
        pages[name] = page.value.answer
    return {
        **pages,
        "token": person.refresh("sso_rt_unknown"),
        "userinfo": person.userinfo(token),
        "readyz": node.readiness(),
    }


def test_it_goes_and_comes_back(node: Node, cluster: Postgresql, person: Person) -> None:
    # Fill the pools of both workers, so that there are connections to go stale.
    codes = [person.authorize()]
    browsers = [another(person) for _ in range(15)]
    for browser in browsers:
        browser.browser.cookies.update(person.browser.cookies)
    with ThreadPoolExecutor(15) as pool:
        codes += pool.map(lambda one: one.authorize(), browsers)
    token = person.exchange(codes[0]).json()["access_token"]

    cluster.stop()
    for name, answer in every_address(node, person, token).items():
        assert answer.status_code == 503, (name, answer.text)
        assert int(answer.headers["Retry-After"]) > 0
        if name in ("token", "userinfo"):
            assert answer.json()["error"] == "temporarily_unavailable"
    assert requests.get(f"{node.origin}/healthz", timeout=5).ok

    cluster.start()
    assert node.readiness().ok
    assert person.userinfo(token).status_code == 200
    assert person.exchange(person.authorize()).status_code == 200
    assert person.exchange(codes[1]).status_code == 200


def test_a_restart_between_requests_costs_none(
    node: Node, cluster: Postgresql, person: Person
) -> None:
    """Every pooled connection is stale; no request may meet one."""
    token = person.exchange(person.authorize()).json()["access_token"]

    def ask(_: int) -> int:
        return person.userinfo(token).status_code

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(ask, range(64))) == {200}
        assert connections(cluster) > WORKERS
        for _ in range(2):
            cluster.stop()
            cluster.start()
            assert set(pool.map(ask, range(64))) == {200}


def test_connections_that_are_cut_off(node: Node, cluster: Postgresql, person: Person) -> None:
    """Somebody ends our connections on the server, again and again, under load."""
    token = person.exchange(person.authorize()).json()["access_token"]
    seen: Counter[int] = Counter()
    with psycopg.connect(plain(cluster), autocommit=True) as admin, ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            asked = [pool.submit(person.userinfo, token) for _ in range(40)]
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'sso'"
            )
            seen.update(one.result().status_code for one in asked)
    assert set(seen) <= {200, 503}
    assert seen[200] > seen[503]
    assert person.userinfo(token).status_code == 200


def test_a_lock_is_not_waited_for_forever(node: Node, cluster: Postgresql, person: Person) -> None:
    code = person.authorize()
    with psycopg.connect(plain(cluster)) as admin:
        admin.execute("LOCK TABLE authorization_codes")
        answer = person.exchange(code)
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
    assert person.exchange(code).status_code == 200


def test_a_server_starts_before_its_database(
    cluster: Postgresql, make_node: Callable[..., Node]
) -> None:
    late = make_node(1, SSO_DATABASE_URL=cluster.url)
    cluster.stop()
    late.start(ready=False)
    wait_for(lambda: "not ready: the database cannot be reached" in late.log, "the warning")
    wait_for(late.is_listening, "gunicorn")
    assert late.readiness().status_code == 503
    cluster.start()
    assert late.readiness().ok


def connections(cluster: Postgresql) -> int:
    with psycopg.connect(plain(cluster)) as admin:
        counted = admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sso'"
        ).fetchone()
    assert counted
    return int(counted[0])


def plain(cluster: Postgresql) -> str:
    return cluster.url.replace("+psycopg", "")
