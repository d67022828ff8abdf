"""kill -9 at random moments under load, then count: nothing lost, nothing twice, no 500.

python -m tests.production.chaos --database postgresql --seconds 180
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from sso import create_app
from sso.extensions import db
from tests.production.audit import Audit, audit
from tests.production.expected import Customer, Expected
from tests.production.people import Person
from tests.production.seeding import a_person, migrate
from tests.support.processes import SECRET_KEY, end_when_asked, wait_for
from tests.support.servers import Node, Postgresql, end

CUSTOMERS = 6


@dataclass
class Outcome:
    """What happened, what clients saw, what the audit found."""

    blows: Counter[str] = field(default_factory=Counter)
    expected: Expected = field(default_factory=Expected)
    audit: Audit = field(default_factory=Audit)

    def __str__(self) -> str:
        parts = [("blows", self.blows), ("seen", self.expected.seen), ("audit", self.audit.figures)]
        lines = [
            f"{title}: " + ", ".join(f"{name} {count}" for name, count in sorted(figures.items()))
            for title, figures in parts
        ]
        wrong = Counter(self.audit.wrong)
        return "\n".join([*lines, f"wrong: {sum(wrong.values())}", *map(str, wrong.items())])


class Killer:
    """Strikes at random moments; anyone who is struck comes back."""

    def __init__(self, nodes: list[Node], cluster: Postgresql | None, seed: int) -> None:
        self.nodes, self.cluster, self.random = nodes, cluster, random.Random(seed)
        self.blows: Counter[str] = Counter()

    def run(self, until: float) -> Counter[str]:
        ways: list[Callable[[], None]] = [self.worker] * 8 + [self.node, self.reload]
        if self.cluster:
            ways += [self.connection] * 2 + [self.database]
        while time.monotonic() < until:
            time.sleep(self.random.uniform(0.05, 0.8))
            self.random.choice(ways)()
        return self.blows

    def worker(self) -> None:
        pids = self.random.choice(self.nodes).worker_pids()
        if pids:
            end(self.random.choice(pids))
            self.blows["workers killed"] += 1

    def node(self) -> None:
        struck = self.random.choice(self.nodes)
        struck.stop(signal.SIGKILL)
        struck.start()
        self.blows["nodes killed"] += 1

    def reload(self) -> None:
        self.random.choice(self.nodes).process.send_signal(signal.SIGHUP)
        self.blows["reloads"] += 1

    def connection(self) -> None:
        """One of PostgreSQL's own processes: it then ends all others, and recovers."""
        assert self.cluster
        assert self.cluster.process
        children = Path(
            f"/proc/{self.cluster.process.pid}/task/{self.cluster.process.pid}/children"
        )
        pids = [int(pid) for pid in children.read_text().split()]
        backends = [pid for pid in pids if b"127.0.0.1" in command_line(pid)]
        if backends:
            end(self.random.choice(backends))
            self.blows["database connections killed"] += 1

    def database(self) -> None:
        """As if its machine had failed."""
        assert self.cluster
        self.cluster.stop(signal.SIGQUIT)
        self.cluster.start()
        self.blows["databases killed"] += 1


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def run(database: str, seconds: float, folder: Path, seed: int) -> Outcome:
    """Two nodes of two workers each on one database, and customers who want to be served."""
    outcome = Outcome()
    with ExitStack() as stack:
        cluster = None
        environ = {"SSO_REFRESH_TOKEN_LEEWAY": "600"}  # a retry may come late
        if database == "postgresql":
            cluster = Postgresql(fsync="off")  # processes are killed, the machine is not
            stack.callback(cluster.remove)
            cluster.start()
            environ["SSO_DATABASE_URL"] = cluster.url
        else:
            environ["SSO_DATABASE_URL"] = f"sqlite:///{folder / 'sso.db'}"
        nodes = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            nodes.append(Node(folder / name, 2, **environ))
            stack.callback(nodes[-1].stop, signal.SIGKILL)
        nodes[1].environ["SSO_BASE_URL"] = nodes[0].base_url
        migrate(nodes[0])
        known = a_person(nodes[0])
        for node in nodes:
            node.start()

        stop = Event()
        addresses = [f"{node.origin}/api/auth" for node in nodes]
        killer = Killer(nodes, cluster, seed)
        customers = [Customer(again(known), addresses, stop, seed + n) for n in range(CUSTOMERS)]

        def has_refreshed() -> bool:
            return any(f.refreshed for one in customers for f in list(one.expected.families))

        with ThreadPoolExecutor(CUSTOMERS) as pool:
            working = [pool.submit(one.run) for one in customers]
            try:
                outcome.blows = killer.run(time.monotonic() + seconds)
                wait_for(has_refreshed, "a refresh", 60)
            finally:
                stop.set()
            for one in working:
                outcome.expected.merge(one.result())
        if cluster:
            wait_for(cluster.answers, "PostgreSQL")
        for node in nodes:
            wait_for(node.is_ready, "gunicorn")
        app = create_app({"SSO_SECRET_KEY": SECRET_KEY, **environ}, folder)
        outcome.audit = audit(app, outcome.expected, known)
        with app.app_context():
            db.engine.dispose()
    return outcome


def again(person: Person) -> Person:
    return Person(person.base_url, person.client_id, person.client_secret)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2), "big"))
    parser.add_argument("--folder", type=Path, help="an empty one, where the logs stay")
    given = parser.parse_args()
    end_when_asked()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(given.database, given.seconds, given.folder or Path(folder), given.seed)
    print(f"{given.database}, {given.seconds:.0f} s, seed {given.seed}\n{outcome}")
    sys.exit(bool(outcome.audit.wrong))


if __name__ == "__main__":
    main()
