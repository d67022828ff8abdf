"""`python -m tests.bench.flood`: what userinfo and refresh suffer while many people sign in.

They send wrong passwords without a pause, over one connection each: from a network each, so that
nobody is limited; or from one network, after its limit.
"""

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from threading import Event

from sso import create_app
from tests.bench.__main__ import make_world, one_core, quiet
from tests.bench.processes import MeasuredServer
from tests.bench.scenarios import BASE, REFRESH, SCENARIOS, USERINFO, World
from tests.bench.transport import Connection, Request, over_connections
from tests.support.processes import Server, end_when_asked, wait_for

REQUESTS = 600
CONNECTIONS = 4
FLOODS = ((24, False), (24, True), (96, False), (200, False))


def main() -> None:
    quiet()
    end_when_asked()
    print(
        "| | fair share | userinfo /s | p50 ms | p99 ms | refresh /s | p50 ms | p99 ms | answers |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for count, one_network in FLOODS:
        with _serving() as (server, world):
            _measure(server, world)  # warms up
            if (count, one_network) == FLOODS[0]:
                print(f"| nobody signs in | | {_measure(server, world)} | |")
            with _flood(server, count, one_network) as answers:
                line = _measure(server, world)
        where = "from one network, limited" if one_network else "from as many networks"
        share = CONNECTIONS / (CONNECTIONS + count)
        print(f"| {count} {where} | {share:.0%} | {line} | {_words(answers)} |")


@contextmanager
def _serving() -> Iterator[tuple[Server, World]]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = MeasuredServer(
            Path(folder), SSO_AUTHORIZATION_CODE_LIFETIME="600", SSO_TRUSTED_PROXIES="1"
        )
        settings = {k: v for k, v in server.environ.items() if k.startswith("SSO_")}
        world = make_world(create_app(settings, Path(folder)), server.base_url, 100)
        with one_core():
            stack.enter_context(server.serving())
        yield server, world


def _measure(server: Server, world: World) -> str:
    cells = []
    for scenario in SCENARIOS[:4]:
        requests = scenario.make(world, REQUESTS)
        begin = time.perf_counter()
        answers = over_connections(server.port, CONNECTIONS, requests)
        wall = time.perf_counter() - begin
        scenario.check(world, answers)
        if scenario in (USERINFO, REFRESH):
            percent = quantiles([1000 * answer.seconds for answer in answers], n=100)
            cells.append(f"{REQUESTS / wall:.0f} | {percent[49]:.1f} | {percent[98]:.1f}")
    return " | ".join(reversed(cells))


@contextmanager
def _flood(server: Server, count: int, one_network: bool) -> Iterator[Counter[int]]:
    """So many people who send a wrong password again and again; counts the answers by status."""
    stop, statuses = Event(), Counter[int]()

    def person(number: int) -> None:
        connection = Connection(server.port)
        page = connection.send(Request("GET", f"{BASE}/sign-in"))
        token = re.search(rb'name="csrf_token"[^>]*value="([^"]+)"', page.body)
        assert token, page
        form = {
            "csrf_token": token[1].decode(),
            "email": f"stranger{number}@bench.example",
            "password": "not the password",
        }
        headers = {
            "Cookie": page.headers["set-cookie"].split(";")[0],
            "X-Forwarded-For": f"198.51.100.{0 if one_network else number}",
        }
        while not stop.is_set():
            if not one_network:  # else the account is limited after some tries
                form["email"] = f"stranger{number}-{time.monotonic_ns()}@bench.example"
            answer = connection.send(Request("POST", f"{BASE}/sign-in", headers, form))
            statuses[answer.status] += 1
        connection.close()

    with ThreadPoolExecutor(count) as pool:
        people = [pool.submit(person, number) for number in range(count)]
        try:
            if one_network:
                wait_for(lambda: statuses[429] >= count, "the limit", 60)
            else:
                time.sleep(1)
            statuses.clear()
            yield statuses
        finally:
            stop.set()
            for one in people:
                one.result()


def _words(statuses: Counter[int]) -> str:
    return ", ".join(f"{count} of {status}" for status, count in statuses.most_common())


if __name__ == "__main__":
    main()
