"""`python -m tests.bench.flood`: what userinfo and refresh suffer while many people sign in."""

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from threading import Event

from sso import create_app
from tests.bench.__main__ import make_world, one_core, quiet
from tests.bench.places import BASE, PLACES, REFRESH, USERINFO, World
from tests.bench.transport import Connection, Request, over_connections
from tests.services import Server

REQUESTS = 100
CONNECTIONS = 4


def main(flood: int = 24) -> None:
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), SSO_AUTHORIZATION_CODE_LIFETIME="600")
        settings = {k: v for k, v in server.environ.items() if k.startswith("SSO_")}
        world = make_world(create_app(settings, Path(folder)), server.base_url, 100)
        with one_core():
            running = server.serving()
            running.__enter__()
        try:
            share = CONNECTIONS / (CONNECTIONS + flood)
            print(f"Fair share of the measured connections during the flood: {share:.0%}\n")
            print("| | userinfo /s | p50 ms | p99 ms | refresh /s | p50 ms | p99 ms | sign-ins |")
            print("|---|---|---|---|---|---|---|---|")
            _measure(server, world)  # warms up
            print(f"| nobody signs in | {_measure(server, world)} | |")
            with _flood(server, flood) as answers:
                line = _measure(server, world)
            print(f"| {flood} at once sign in | {line} | {dict(answers)} |")
        finally:
            running.__exit__(None, None, None)


def _measure(server: Server, world: World) -> str:
    cells = []
    for place in PLACES[:4]:
        requests = place.make(world, REQUESTS)
        begin = time.perf_counter()
        answers = over_connections(server.port, CONNECTIONS, requests)
        wall = time.perf_counter() - begin
        place.check(world, answers)
        if place in (USERINFO, REFRESH):
            percent = quantiles([1000 * answer.seconds for answer in answers], n=100)
            cells.append(f"{REQUESTS / wall:.0f} | {percent[49]:.1f} | {percent[98]:.1f}")
    return " | ".join(reversed(cells))


@contextmanager
def _flood(server: Server, count: int) -> Iterator[Counter[int]]:
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
        cookie = {"Cookie": page.headers["set-cookie"].split(";")[0]}
        while not stop.is_set():
            answer = connection.send(Request("POST", f"{BASE}/sign-in", cookie, form))
            statuses[answer.status] += 1
        connection.close()

    with ThreadPoolExecutor(count) as pool:
        people = [pool.submit(person, number) for number in range(count)]
        time.sleep(1)
        try:
            yield statuses
        finally:
            stop.set()
            for one in people:
                one.result()


if __name__ == "__main__":
    main()
