"""Two PostgreSQL servers that Patroni looks after, with etcd: one takes over from the other."""

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path

import requests

from tests.support.processes import free_port, require
from tests.support.servers import Machine, children, end

# Shorter than anyone would have them; newer versions of Patroni raise what is too short.
TTL = 5
DCS = {
    "ttl": TTL,
    "loop_wait": 1,
    "retry_timeout": 2,
    "synchronous_mode": True,
    "postgresql": {"use_pg_rewind": False, "parameters": {"fsync": "off", "max_connections": 60}},
}
TRUST = ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]


class Etcd(Machine):
    def command(self) -> list[str]:
        program = require("etcd", shutil.which("etcd"))
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.port, free_port()))
        urls = {
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "data-dir": str(self.folder / "etcd"),
        }
        return [
            program,
            "--unsafe-no-fsync",
            *(f"--{name}={value}" for name, value in urls.items()),
        ]


class PatroniNode(Machine):
    """One server with its Patroni, which makes it: the first is the primary."""

    def __init__(self, name: str, etcd: Etcd) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="patroni-")))
        self.name, self.etcd, self.rest_port = name, etcd, free_port()
        self.data = self.folder / "data"
        self._lock = self.data / "postmaster.pid"
        self.program = require("Patroni", shutil.which("patroni"))
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        self.bin = Path(require("PostgreSQL", str(found[-1]) if found else None)).parent
        self.prefix: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self.prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            shutil.chown(self.folder, "postgres", "postgres")

    def command(self) -> list[str]:
        settings = {
            "scope": "sso",
            "name": self.name,
            "restapi": _at(self.rest_port),
            "etcd3": {"host": f"127.0.0.1:{self.etcd.port}"},
            "bootstrap": {"dcs": DCS, "initdb": [{"auth": "trust"}, "no-sync"], "pg_hba": TRUST},
            "postgresql": {
                **_at(self.port),
                "data_dir": str(self.data),
                "bin_dir": str(self.bin),
                "pgpass": str(self.folder / "pgpass"),
                "pg_hba": TRUST,
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "replicator", "password": "of no use here"},
                },
                "parameters": {"unix_socket_directories": str(self.folder)},
            },
        }
        file = self.folder / "patroni.yml"
        file.write_text(json.dumps(settings))  # which is YAML, too
        return [*self.prefix, self.program, str(file)]

    def answers(self) -> bool:
        """Whether the server runs, as primary or as standby."""
        return self.is_("health")

    def is_(self, what: str) -> bool:
        """Whether Patroni says that it is `primary`, `synchronous`, …"""
        try:
            return requests.get(f"http://127.0.0.1:{self.rest_port}/{what}", timeout=3).ok
        except requests.RequestException:
            return False

    def stop_replicating(self) -> None:
        """What is committed from now on does not reach the standby."""
        for pid in children(int(self._lock.read_text().split()[0])):
            if b"walsender" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGSTOP)

    def fail(self) -> None:
        """The machine is gone, with all that runs on it, in no particular order."""
        self.stop(signal.SIGKILL)
        if self._lock.exists():
            postmaster = int(self._lock.read_text().split()[0])
            for pid in (*children(postmaster), postmaster):
                end(pid)
            self._lock.unlink()  # another process may get this number one day

    def remove(self) -> None:
        self.fail()
        shutil.rmtree(self.folder)


def _at(port: int) -> dict[str, str]:
    return {"listen": f"127.0.0.1:{port}", "connect_address": f"127.0.0.1:{port}"}
