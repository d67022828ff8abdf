"""Real services for tests: gunicorn, granian, Redis, Chromium. All listen on 127.0.0.1."""

import atexit
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import requests

from sso.process import stop_signals
from tests.support.programs import Program

ROOT = Path(__file__).resolve().parents[2]
SECRET_KEY = "a secret key for tests, and for tests alone"
CONFIGURATION = "python:sso.server.gunicorn_conf"
SERVERS = {"gunicorn": "gunicorn", "granian": "sso.server.granian"}  # by name, the module that runs
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
]


def end_when_asked() -> None:
    """For programs: SIGINT and SIGTERM end it with all that it has started, even if its parent
    left it with these signals ignored."""

    def stop() -> None:
        raise KeyboardInterrupt

    stop_signals.handle(stop)


def require(what: str, path: str | None) -> str:
    """The program, or a skip; in CI a missing program is a failure."""
    if path:
        return path
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing, and in CI nothing is skipped")
    pytest.skip(f"{what} is not installed")


def free_port() -> int:
    """A port on which nobody listens, and that no outgoing connection takes by chance."""
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def _own_ports() -> Iterator[int]:
    """Below Linux's ephemeral ports, apart for each of pytest-xdist's workers."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 10_000 + worker * 2_000
    start = random.randrange(2_000)
    for step in range(20_000):
        port = first + (start + step) % 2_000
        if port != 10_080:  # browsers refuse it
            yield port


_ports = _own_ports()


def wait_for(
    ready: Callable[[], bool], what: str, seconds: float = 60, pause: float = 0.05
) -> None:
    """Poll until it is ready; `pause` when asking costs more than the wait."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if ready():
            return
        time.sleep(pause)
    raise AssertionError(f"{what} was not ready within {seconds} s")


@contextmanager
def redis_server(
    port: int, *arguments: str, kind: str = "redis"
) -> Iterator[subprocess.Popen[bytes]]:
    """Redis or Valkey on this port, with nothing on the disk."""
    process = subprocess.Popen(
        [
            *(require(kind, shutil.which(f"{kind}-server")), "--port", str(port)),
            *("--bind", "127.0.0.1", "--save", "", *arguments),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: _answers(port) and process.poll() is None, "Redis")
        yield process
    finally:
        process.kill()
        process.wait(10)


class Server:
    """gunicorn or granian with the application, on a database of its own."""

    def __init__(
        self, folder: Path, workers: int = 2, kind: str = "gunicorn", **environ: str
    ) -> None:
        self.folder, self.workers, self.kind = folder, workers, kind
        self.port = free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self.base_url = f"{self.origin}/api/auth"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SSO_", "COV_"))}
        self.environ = {
            **inherited,
            "SSO_BASE_URL": self.base_url,
            "SSO_DATABASE_URL": f"sqlite:///{folder / 'sso.db'}",
            "SSO_SECRET_KEY": SECRET_KEY,
            **environ,
        }

    def flask(self, *arguments: str, stdin: str = "", **environ: str) -> str:
        """Run the real command line; gives its standard output."""
        done = self.try_flask(*arguments, stdin=stdin, **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def try_flask(
        self, *arguments: str, stdin: str = "", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the real command line, whatever comes of it."""
        with tempfile.TemporaryDirectory() as name:
            given, out, err = (Path(name) / one for one in ("in", "out", "err"))
            given.write_text(stdin)
            program = Program(
                "flask",
                arguments,
                cwd=ROOT,
                env={**self.environ, **environ},
                stdin=given,
                stdout=out,
                stderr=err,
            )
            code = program.wait()
            return subprocess.CompletedProcess(program.args, code, out.read_text(), err.read_text())

    def python(
        self, *arguments: str, stdin: str = "", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with this server's settings."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**self.environ, **environ},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def register(self, name: str, redirect_uri: str, *options: str) -> dict[str, Any]:
        """Register a client with the command line."""
        given = ["--name", name, "--redirect-uri", redirect_uri, *options]
        registered: dict[str, Any] = json.loads(self.flask("client", "create", *given, "--json"))
        return registered

    def migrate(self) -> None:
        """Bring the database to the current schema: a new SQLite file is a copy of such a one."""
        file = self.folder / "sso.db"
        is_ours = self.environ["SSO_DATABASE_URL"] == f"sqlite:///{file}"
        if is_ours and self.environ["SSO_SECRET_KEY"] == SECRET_KEY and not file.exists():
            shutil.copy(_migrated(), file)
        else:
            self.flask("db", "upgrade")

    @contextmanager
    def running(self, *arguments: str) -> Iterator["Server"]:
        """Migrate, start, wait until ready; stop in the end."""
        self.migrate()
        with self.serving(*arguments):
            yield self

    @contextmanager
    def serving(self, *arguments: str) -> Iterator["Server"]:
        """Start, wait until ready; stop in the end."""
        self.start(*arguments)
        try:
            yield self
        finally:
            self.stop()

    def start(self, *arguments: str) -> None:
        """Start, with more arguments of the server's own, and wait until it is ready."""
        self.arguments = arguments
        own = ["-b", f"127.0.0.1:{self.port}", "-w", str(self.workers)]
        self.process = self.launch([*arguments, *own], cwd=ROOT, env=self.environ)
        wait_for(self._is_ready, self.kind)

    def launch(
        self, arguments: list[str], *, cwd: Path, env: dict[str, str]
    ) -> Program | subprocess.Popen[bytes]:
        """Run the server, which writes to its log."""
        log = self.folder / f"{self.kind}.log"
        return Program(SERVERS[self.kind], arguments, cwd=cwd, env=env, stdout=log)

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.kind} did not stop:\n{self.log}") from None

    @contextmanager
    def worker(self) -> Iterator[None]:
        """A running `flask worker`, which must end well."""
        log = self.folder / "worker.log"
        process = Program("flask", ["worker"], cwd=ROOT, env=self.environ, stdout=log)
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(40) == 0, log.read_text()

    def restart(self) -> None:
        """Stop and start with the arguments of the last start."""
        self.stop()
        self.start(*self.arguments)

    @property
    def log(self) -> str:
        return (self.folder / f"{self.kind}.log").read_text()

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            return requests.get(f"{self.origin}/readyz", timeout=5).ok
        except (requests.ConnectionError, requests.Timeout):
            return False


@cache
def _migrated() -> Path:
    """A file as `flask db upgrade` leaves it, made once: the command takes seconds each time."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Server(folder).flask("db", "upgrade")
    with closing(sqlite3.connect(folder / "sso.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # all of it is in this one file
    return folder / "sso.db"


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def chromium(whole: bool = False) -> str:
    """The path of Debian's Chromium; without EXHAUSTIVE=1 the one without windows.

    That has the same engine and takes a third of the time for a page, but it has no preferences.
    """
    wants_whole = whole or bool(os.environ.get("EXHAUSTIVE"))
    without_windows = None if wants_whole else shutil.which("chromium-headless-shell")
    return require("Chromium", without_windows or shutil.which("chromium"))
