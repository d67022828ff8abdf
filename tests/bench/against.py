"""`python -m tests.bench.against TREE`: this commit beside another one, in turns.

TREE is a work tree of the other commit, with an environment of its own in `.venv`. Each tree runs
its own server, on a database of its own, and its own copy of the scenarios. What counts is the CPU
time of the server's processes and, with PostgreSQL, of the cluster's. Each round measures both, and
gives a ratio: what makes the machine slow makes both slow.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ("authorize", "code exchange", "refresh", "userinfo", "sign-in page", "push")
BARE = "bare Flask route"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.against", description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=100, help="per scenario, round and server")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seed-rows", type=int, default=500, help="users; ten tokens for each")
    options = parser.parse_args()
    print(compare(options))


def compare(options: argparse.Namespace) -> str:
    """Return a table in Markdown: medians of the rounds, and the quartiles of their ratios."""
    trees = (options.tree.resolve(), ROOT)
    found: tuple[list[dict[str, float]], ...] = ([], [])
    with ExitStack() as stack:
        processes = []
        for tree in trees:  # one after the other: both start on one core
            processes.append(stack.enter_context(_start(tree, options)))
            _ask(processes[-1])
        for number in range(options.rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                found[which].append(_ask(processes[which]))
        for process in processes:
            assert process.stdin
            process.stdin.close()
            process.wait(60)
    return _table(*found)


def _start(tree: Path, options: argparse.Namespace) -> "subprocess.Popen[str]":
    settings = {name: value for name, value in vars(options).items() if name != "tree"}
    return subprocess.Popen(
        [str(tree / ".venv/bin/python"), str(Path(__file__).resolve()), json.dumps(settings)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _ask(process: "subprocess.Popen[str]") -> dict[str, float]:
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("{"):
            spent: dict[str, float] = json.loads(line)
            return spent
    raise RuntimeError("a server ended")


def _table(others: list[dict[str, float]], ours: list[dict[str, float]]) -> str:
    lines = ["| CPU ms | other | this | ratio | quartiles |", "|---|---:|---:|---:|---|"]
    for name in ours[0]:
        ratios = [own[name] / other[name] for other, own in zip(others, ours, strict=True)]
        low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        cells = [f"{median(spent[name] for spent in rounds):.3f}" for rounds in (others, ours)]
        lines.append(f"| {name} | {' | '.join(cells)} | {middle:.3f} | {low:.3f} to {high:.3f} |")
    return "\n".join(lines)


def serve(settings: dict[str, Any]) -> None:
    """Measure a round for each line on standard input, with the code of the tree we run in."""
    from sso import create_app
    from tests.bench import processes
    from tests.bench.__main__ import BARE_ROUTE, make_world, one_core, quiet
    from tests.bench.scenarios import SCENARIOS as ALL
    from tests.bench.transport import over_connections
    from tests.support.servers import Postgresql

    quiet()
    scenarios = [scenario for scenario in ALL if scenario.name in (*SCENARIOS, BARE)]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, cluster = Path(name), None
        environ = {"SSO_AUTHORIZATION_CODE_LIFETIME": "60"}
        if settings["database"] == "postgresql":
            cluster = Postgresql(fsync="off", autovacuum="off")
            stack.callback(cluster.remove)
            cluster.start()
            environ["SSO_DATABASE_URL"] = cluster.url
        (folder / "bare").mkdir()
        server = processes.MeasuredServer(folder, workers=1, **environ)
        bare = processes.MeasuredServer(folder / "bare", workers=1)
        names = {key: value for key, value in server.environ.items() if key.startswith("SSO_")}
        world = make_world(create_app(names, folder), server.base_url, settings["seed_rows"])
        with one_core():
            stack.enter_context(server.serving())
            stack.enter_context(bare.serving(*BARE_ROUTE))
        for _ in sys.stdin:
            spent: dict[str, float] = {}
            for scenario in scenarios:
                target = bare if scenario.name == BARE else server
                pids = processes.tree(target.pid)
                database = (
                    processes.tree(cluster.process.pid) if cluster and cluster.process else []
                )
                requests = scenario.make(world, settings["requests"])
                before = processes.thread_seconds(pids), processes.thread_seconds(database)
                answers = over_connections(target.port, settings["connections"], requests)
                server_spent = processes.thread_seconds(pids) - before[0]
                database_spent = processes.thread_seconds(database) - before[1]
                scenario.check(world, answers)
                spent[scenario.name] = 1000 * server_spent / len(requests)
                if cluster and target is server:
                    whole = server_spent + database_spent
                    spent[f"{scenario.name}, with database"] = 1000 * whole / len(requests)
            print(json.dumps(spent), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        serve(json.loads(sys.argv[1]))
    else:
        main()
