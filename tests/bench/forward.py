"""`python -m tests.bench.forward`: an application behind nginx and forward auth, in turns with the
same one without sign-in, and behind OAuth2 Proxy if `--oauth2-proxy` names its program.

nginx asks before each request. What counts is the CPU time of what it asks: gunicorn with two
workers, with PostgreSQL also the cluster, or OAuth2 Proxy.
"""

import argparse
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.applications.conftest import DANA, PASSWORD
from tests.applications.proxies import NGINX, Person
from tests.applications.software import Application
from tests.bench.processes import MeasuredServer, thread_seconds, tree
from tests.bench.transport import Request, over_connections
from tests.support.processes import Server, end_when_asked, free_port, wait_for
from tests.support.servers import Postgresql

SIGNED_IN = "it answers"
UPSTREAM = """server {{
    listen 127.0.0.1:{port};
    location / {{ return 200 "{text}"; }}
}}
server {{
    listen 127.0.0.1:{bare};
    location / {{ proxy_pass http://127.0.0.1:{port}; proxy_http_version 1.1; }}
}}
"""


@dataclass
class Way:
    """One way to the application. `pids`: of the processes that nginx asks."""

    name: str
    port: int
    pids: Callable[[], list[int]]
    cookie: str = ""
    cpu: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)

    def measure(self, count: int, connections: int) -> None:
        headers = {"Cookie": self.cookie} if self.cookie else {}
        requests = [Request("GET", "/page", headers)] * count
        pids = self.pids()
        before, began = thread_seconds(pids), time.perf_counter()
        answers = over_connections(self.port, connections, requests)
        seconds = time.perf_counter() - began
        assert all(answer.body == SIGNED_IN.encode() for answer in answers), answers[0]
        self.cpu.append(1000 * (thread_seconds(pids) - before) / count)
        self.rate.append(count / seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.forward", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--oauth2-proxy", type=Path, metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=500, help="per round and way")
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    end_when_asked()
    with ExitStack() as stack:
        ways = _ways(stack, options)
        for number in range(options.rounds + 1):
            for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
                way.measure(options.requests, options.connections)
        print(table(ways))


def table(ways: list[Way]) -> str:
    """Return medians of the rounds but the first, which warms up, as Markdown."""
    lines = ["| | CPU ms per request | requests per second |", "|---|---:|---:|"]
    for way in ways:
        cpu = f"{median(way.cpu[1:]):.2f}" if way.cpu[-1] else ""
        lines.append(f"| {way.name} | {cpu} | {median(way.rate[1:]):.0f} |")
    return "\n".join(lines)


def _ways(stack: ExitStack, options: argparse.Namespace) -> list[Way]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    environ: dict[str, Any] = {"SSO_TRUSTED_PROXIES": "1"}
    cluster = None
    if options.database == "postgresql":
        cluster = Postgresql(fsync="off", autovacuum="off")
        stack.callback(cluster.remove)
        cluster.start()
        environ["SSO_DATABASE_URL"] = cluster.url
    (folder / "server").mkdir()
    server = MeasuredServer(folder / "server", **environ)
    stack.enter_context(server.running())
    server.flask(
        "user", "create", "--email", DANA.email, "--name", "Dana", "--email-verified",
        "--password-stdin", stdin=PASSWORD,
    )  # fmt: skip
    upstream, bare = free_port(), free_port()

    def asked() -> list[int]:
        database = tree(cluster.process.pid) if cluster and cluster.process else []
        return tree(server.pid) + database

    ours = _application(folder / "ours", server, "nginx", "--first-party", "--option",
                        f"upstream=http://127.0.0.1:{upstream}", "--option",
                        f"server={server.origin}")  # fmt: skip
    sites = UPSTREAM.format(port=upstream, bare=bare, text=SIGNED_IN) + ours.printed("nginx")
    stack.enter_context(_nginx(ours, sites))
    ways = [
        Way("nginx alone", bare, list),
        Way(f"forward auth, {options.database}", ours.port, asked, _signed_in(ours)),
    ]
    if options.oauth2_proxy:
        theirs = _application(folder / "theirs", server, "nginx-oauth2-proxy", "--first-party",
                              "--option", f"upstream=http://127.0.0.1:{upstream}",
                              "--alternative", "systemd")  # fmt: skip
        process = stack.enter_context(_oauth2_proxy(theirs, options.oauth2_proxy.resolve()))
        site = theirs.printed("nginx").replace("127.0.0.1:4180", f"127.0.0.1:{process[1]}")
        stack.enter_context(_nginx(theirs, site))
        ways.append(Way("OAuth2 Proxy", theirs.port, lambda: tree(process[0]), _signed_in(theirs)))
    return ways


def _application(folder: Path, server: Server, preset: str, *options: str) -> Application:
    folder.mkdir()
    return Application(folder, server, preset, *options)


@contextmanager
def _nginx(app: Application, sites: str) -> Iterator[None]:
    program = shutil.which("nginx", path="/usr/sbin")
    assert program, "nginx is not installed"
    own = sites.replace(f"listen {app.port}", f"listen 127.0.0.1:{app.port}")
    file = app.folder / "nginx.conf"
    file.write_text(NGINX.format(folder=app.folder, site=own))
    with app.running(program, "-p", str(app.folder), "-c", str(file), path=None):
        yield


@contextmanager
def _oauth2_proxy(app: Application, program: Path) -> Iterator[tuple[int, int]]:
    """Start OAuth2 Proxy; give its process ID and its port."""
    port, file = free_port(), app.folder / "oauth2-proxy.cfg"
    text = app.printed("oauth2-proxy.cfg").replace("127.0.0.1:4180", f"127.0.0.1:{port}")
    file.write_text(text)
    with (app.folder / "oauth2-proxy.log").open("w") as output:
        process = subprocess.Popen(
            [program, f"--config={file}", "--request-logging=false", "--auth-logging=false"],
            env={**os.environ, "OAUTH2_PROXY_COOKIE_SECRET": secrets.token_urlsafe(24)[:32]},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: b"200" in _head(port), "OAuth2 Proxy", 60)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(20)


def _head(port: int) -> bytes:
    try:
        return str(over_connections(port, 1, [Request("GET", "/ping")])[0].status).encode()
    except OSError:
        return b""


def _signed_in(app: Application) -> str:
    """Sign a person in; return the cookies of the application's host."""
    person = Person(app)
    person.follow(person.open("/page"), until=SIGNED_IN)
    return "; ".join(f"{c.name}={c.value}" for c in person.http.cookies if c.path == "/")


if __name__ == "__main__":
    main()
