"""Machines that a test starts, stops and kills: PostgreSQL, Redis, gunicorn."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from tests.support.processes import CONFIGURATION, ROOT, Server, free_port, require, wait_for


class Machine:
    """One process on one port."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def start(self) -> None:
        with (self.folder / "output").open("a") as output:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,  # at the end of a pipe, Samba would end, too
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        wait_for(self.answers, type(self).__name__)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(40)
            self.process = None


class Postgresql(Machine):
    """A cluster of its own; SIGINT is its fast shutdown, SIGQUIT as if the power failed."""

    def __init__(self, standby_of: "Postgresql | None" = None, **options: str) -> None:
        # Not in pytest's folder, which is closed to other users, and so to PostgreSQL's.
        folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
        super().__init__(folder)
        self.options = options
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        self.initdb = require("PostgreSQL", str(found[-1]) if found else shutil.which("initdb"))
        self.prefix: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self.prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            shutil.chown(folder, "postgres", "postgres")
        self.data = folder / "data"
        common = ["-D", str(self.data), "-U", "postgres", "--no-sync"]
        if standby_of:
            source = ["-h", "127.0.0.1", "-p", str(standby_of.port), "-R", "-c", "fast"]
            self.run("pg_basebackup", *common, *source)
        else:
            self.run("initdb", *common, "-A", "trust")

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def command(self) -> list[str]:
        postgres = Path(self.initdb).with_name("postgres")
        options = {"listen_addresses": "127.0.0.1", "port": self.port, **self.options}
        given = [f"-c{name}={value}" for name, value in options.items()]
        return [*self.prefix, str(postgres), "-D", str(self.data), "-k", str(self.folder), *given]

    def answers(self) -> bool:
        ready = Path(self.initdb).with_name("pg_isready")
        asked = [str(ready), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        super().stop(how)

    def remove(self) -> None:
        """Stop it at once, and forget its data."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder)

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-w", "-D", str(self.data))

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs."""
        path = Path(self.initdb).with_name(program)
        command = [*self.prefix, str(path), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder)


class Pgbouncer(Machine):
    """PgBouncer before a cluster, in transaction mode as its package has it otherwise."""

    def __init__(
        self,
        cluster: Postgresql,
        program: str = "pgbouncer",
        user: str = "postgres",
        **settings: str,
    ) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="pgbouncer-")))
        self.cluster, self.prefix, self.user = cluster, cluster.prefix, user
        self.database = "postgres"
        self.program = require("PgBouncer", shutil.which(program))
        if self.prefix:  # it refuses to run as root, too
            shutil.chown(self.folder, "postgres", "postgres")
        self.settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            **settings,
        }

    @property
    def url(self) -> str:
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{self.database}"

    def command(self) -> list[str]:
        lines = [f"{name} = {value}" for name, value in self.settings.items()]
        target = f"* = host=127.0.0.1 port={self.cluster.port} user={self.user}"
        file = self.folder / "pgbouncer.ini"
        file.write_text("\n".join(["[databases]", target, "[pgbouncer]", *lines, ""]))
        return [*self.prefix, self.program, str(file)]

    def remove(self) -> None:
        self.stop(signal.SIGKILL)  # at SIGTERM newer ones wait for their clients
        shutil.rmtree(self.folder)


@contextmanager
def postgresql() -> Iterator[str]:
    """A cluster for one purpose; gives its SQLAlchemy URL."""
    cluster = Postgresql(fsync="off")
    cluster.start()
    try:
        yield cluster.url
    finally:
        cluster.remove()


class Redis(Machine):
    """Redis, which may follow another one."""

    def __init__(self, folder: Path, password: str = "", primary: "Redis | None" = None) -> None:
        super().__init__(folder)
        self.password, self.primary = password, primary

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        server = require("Redis", shutil.which("redis-server"))
        command = [server, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--repl-diskless-sync-delay", "0"]
        if self.password:
            command += ["--requirepass", self.password, "--masterauth", self.password]
        if self.primary:
            command += ["--replicaof", "127.0.0.1", str(self.primary.port)]
        return command


class Sentinel(Redis):
    """Promotes a replica of its primary as soon as that is away."""

    def command(self) -> list[str]:
        server, name = require("Redis", shutil.which("redis-server")), "limits"
        assert self.primary
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"sentinel monitor {name} 127.0.0.1 {self.primary.port} 1",
            f"sentinel down-after-milliseconds {name} 500",
            f"sentinel failover-timeout {name} 2000",
            *([f"sentinel auth-pass {name} {self.password}"] if self.password else []),
        ]
        file = self.folder / "sentinel.conf"
        file.write_text("\n".join([*lines, ""]))
        return [server, str(file), "--sentinel"]

    def replicas(self) -> set[int]:
        """The ports of those that could be promoted."""
        asked = ["redis-cli", "-p", str(self.port), "--json", "sentinel", "replicas", "limits"]
        done = subprocess.run(asked, check=True, capture_output=True)
        return {int(one["port"]) for one in json.loads(done.stdout)}


class Node(Server):
    """gunicorn as `python:sso.server.gunicorn_conf` sets it up, started and killed at will."""

    def start(self, *arguments: str, ready: bool = True) -> None:
        """Start, and wait until it is ready to serve."""
        own = ["-b", f"127.0.0.1:{self.port}", "-w", str(self.workers)]
        self.process = self.launch(
            ["-c", CONFIGURATION, *arguments, *own],
            cwd=self.folder,
            env={**self.environ, "PYTHONPATH": str(ROOT)},
        )
        if ready:
            wait_for(self.is_ready, "gunicorn")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """SIGTERM ends it when its requests have been answered."""
        process = getattr(self, "process", None)
        if process is None or process.poll() is not None:
            return
        workers = self.worker_pids() if how == signal.SIGKILL else []
        process.send_signal(how)
        for worker in workers:
            end(worker)
        process.wait(40)

    def worker_pids(self) -> list[int]:
        """The process ids of the workers."""
        return children(self.process.pid)

    def add_user(self, email: str, password: str) -> None:
        command = ["user", "create", "--email", email, "--name", "Dana", "--email-verified"]
        self.flask(*command, "--password-stdin", stdin=password + "\n")

    def is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def is_ready(self) -> bool:
        try:
            return self.readiness().ok
        except requests.RequestException:
            return False

    def readiness(self) -> requests.Response:
        return requests.get(f"{self.origin}/readyz", timeout=20)


def end(pid: int) -> None:
    """kill -9, whether it is still there or not."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
