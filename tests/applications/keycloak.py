"""A real Keycloak: a realm is made by its API, used, and exported."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.applications import software
from tests.support.processes import free_port, require, wait_for

LIMIT = 600  # seconds; it starts in 20 s on an idle machine
ADMIN = "admin"


BUILD = ("--db", "dev-file", "--cache", "local", "--health-enabled", "false")


def _built() -> Path:
    """The program with its configuration compiled in, which each start would do otherwise."""

    def fill(folder: Path) -> None:
        shutil.copytree(software.archive("keycloak"), folder, symlinks=True)
        software.run(folder / "bin/kc.sh", "build", *BUILD)

    return software.made("keycloak-built", [software.LOCKS / "keycloak.txt"], fill)


class Keycloak:
    """An installation of its own, with an empty database."""

    def __init__(self, folder: Path) -> None:
        require("Java", shutil.which("java"))
        self.home = folder / "keycloak"
        shutil.copytree(_built(), self.home, symlinks=True)
        self.port, self.management = free_port(), free_port()
        self.origin = f"http://localhost:{self.port}"
        self.log = folder / "keycloak.log"
        self._environ = software.environ() | {
            "KC_BOOTSTRAP_ADMIN_USERNAME": ADMIN,
            "KC_BOOTSTRAP_ADMIN_PASSWORD": ADMIN,
            "JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx512m",
        }

    def issuer(self, realm: str) -> str:
        return f"{self.origin}/realms/{realm}"

    @contextmanager
    def running(self) -> Iterator["Keycloak"]:
        """Start it, wait until it is ready, stop it in the end."""
        listen = ["--http-host", "127.0.0.1", "--http-port", str(self.port),
                  "--http-management-port", str(self.management),
                  "--http-access-log-enabled", "true", "--http-enabled", "true",
                  "--hostname-strict", "false"]  # fmt: skip
        with self.log.open("wb") as log:
            command = (self.home / "bin/kc.sh", "start", "--optimized", *listen)
            process = software.start(*command, output=log, **self._environ)

        def is_ready() -> bool:
            assert process.poll() is None, self.log.read_text()
            try:
                return requests.get(self.issuer("master"), timeout=60).ok
            except (requests.ConnectionError, requests.Timeout):
                return False

        try:
            wait_for(is_ready, "Keycloak", LIMIT)
            yield self
        finally:
            software.stop(process)

    def create(self, realm: dict[str, Any]) -> None:
        """Make a realm, as the admin console does."""
        grant = {"grant_type": "password", "client_id": "admin-cli", "username": ADMIN,
                 "password": ADMIN}  # fmt: skip
        token = requests.post(
            f"{self.issuer('master')}/protocol/openid-connect/token", data=grant, timeout=60
        ).json()["access_token"]
        made = requests.post(
            f"{self.origin}/admin/realms", json=realm, timeout=300,
            headers={"Authorization": f"Bearer {token}"},
        )  # fmt: skip
        assert made.status_code == 201, made.text

    def export(self, realm: str, file: Path) -> None:
        """Export a realm with its people, while Keycloak is stopped."""
        done = subprocess.run(
            [self.home / "bin/kc.sh", "export", "--optimized", "--realm", realm, "--file", file],
            env=os.environ | self._environ, capture_output=True, text=True, timeout=LIMIT,
            check=False,
        )  # fmt: skip
        assert file.exists(), done.stdout + done.stderr

    def take(self, file: Path) -> None:
        """Import a realm, while Keycloak is stopped."""
        done = subprocess.run(
            [self.home / "bin/kc.sh", "import", "--optimized", "--file", file],
            env=os.environ | self._environ, capture_output=True, text=True, timeout=LIMIT,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
