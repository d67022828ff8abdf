"""`python -m tests.bench.servers`: the same requests under gunicorn and granian, in turns.

All servers have one database. What counts is the CPU time of a server's processes.
"""

import argparse
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from sso import create_app
from tests.bench.__main__ import make_world, one_core, quiet
from tests.bench.processes import MeasuredServer, memory, thread_seconds, tree
from tests.bench.scenarios import AUTHORIZE, BASE, EXCHANGE, REFRESH, USERINFO, Scenario, World
from tests.bench.transport import Answer, Request, over_connections
from tests.support.processes import SERVERS, end_when_asked
from tests.support.servers import postgresql

_DISCOVERY = f"{BASE}/.well-known/openid-configuration"


def _discovery(_: World, count: int) -> list[Request]:
    return [Request("GET", _DISCOVERY)] * count


def _check_discovery(world: World, answers: list[Answer]) -> None:
    assert all(json.loads(answer.body)["issuer"] == world.issuer for answer in answers)


# Each one uses what the one before it gave.
SCENARIOS = (
    *(AUTHORIZE, EXCHANGE, REFRESH, USERINFO),
    Scenario("discovery", _discovery, _check_discovery),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.servers", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--requests", type=int, default=100, help="per scenario, round and server")
    parser.add_argument("--seed-rows", type=int, default=1000, help="users; ten tokens for each")
    options = parser.parse_args()
    end_when_asked()
    quiet()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        database: dict[str, Any] = {}
        if options.database == "postgresql":
            database["SSO_DATABASE_URL"] = stack.enter_context(postgresql())
        servers, world = make(Path(folder), options.seed_rows, database)
        with one_core():
            for server in servers:
                stack.enter_context(server.serving())
        print(measure(servers, world, options.rounds, options.requests))


def make(folder: Path, rows: int, environ: dict[str, Any]) -> tuple[list[MeasuredServer], World]:
    """A server of each kind, all with the database and the issuer of the first."""
    servers: list[MeasuredServer] = []
    for kind in SERVERS:
        servers.append(MeasuredServer(folder, kind=kind, **environ))
        environ = {n: v for n, v in servers[0].environ.items() if n.startswith("SSO_")}
    return servers, make_world(create_app(environ, folder), servers[0].base_url, rows)


def measure(servers: list[MeasuredServer], world: World, rounds: int, count: int) -> str:
    """Medians of the rounds, as a table in Markdown."""
    at_start = [memory(tree(server.pid)) for server in servers]
    spent: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):
        # By turns the first, because what one leaves in the caches is there for the next.
        for server in servers[number % len(servers) :] + servers[: number % len(servers)]:
            for scenario in SCENARIOS:
                requests = scenario.make(world, count)
                pids = tree(server.pid)
                before = thread_seconds(pids)
                answers = over_connections(server.port, 8, requests)
                cpu = 1000 * (thread_seconds(pids) - before) / count
                scenario.check(world, answers)
                if number:  # the first round warms up
                    spent.setdefault((scenario.name, server.kind), []).append(cpu)
    after = [memory(tree(server.pid)) for server in servers]
    return _table([server.kind for server in servers], spent, at_start, after)


def _table(
    kinds: list[str], spent: dict[tuple[str, str], list[float]], *memories: list[int]
) -> str:
    lines = [f"| CPU ms | {' | '.join(kinds)} | ratio |", "|---|" + "---:|" * (len(kinds) + 1)]
    for scenario in SCENARIOS:
        found = [spent[scenario.name, kind] for kind in kinds]
        # Of each round's pair: what makes the machine slow makes both slow.
        ratios = [
            f"{median(b / a for a, b in zip(found[0], other, strict=True)):.2f}"
            for other in found[1:]
        ]
        cells = " | ".join(f"{median(one):.2f}" for one in found)
        lines.append(f"| {scenario.name} | {cells} | {', '.join(ratios)} |")
    for what, bytes_ in zip(("at start", "after the load"), memories, strict=True):
        cells = " | ".join(f"{one / 1e6:.0f}" for one in bytes_)
        lines.append(f"| MB {what} | {cells} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
