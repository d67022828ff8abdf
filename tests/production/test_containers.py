"""The image is built and run, with Compose as its page says; Kubernetes' schemas fit."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import containers, machines
from tests.support.deploy_pages import BASE, NEW_CLIENT, PASSWORD, SIGN_IN, SIGNED_IN, blocks
from tests.support.processes import ROOT, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("DEPLOYMENT"),
        reason="boots machines and builds an image, for minutes; with DEPLOYMENT=1 it does",
    ),
]
BIN = Path(sys.executable).parent
# What the page calls `docker` is Podman here; Debian's root is in place of what registries have.
DOCKER = """#!/bin/bash
set -e
compose=({bin}/podman-compose --podman-build-args "{offline}"
         -f compose.yaml -f ../test.yaml)
[ "$1" = compose ] || exec podman "$@"
case $2 in
  exec) shift 2; [ "$1" != -T ] || shift
        exec "${{compose[@]}}" exec -T -e REQUESTS_CA_BUNDLE=/var/lib/sso/ca.crt "$@" ;;
  *) shift; exec "${{compose[@]}}" "$@" ;;
esac
"""
# While a container is stopped, Podman's DNS server asks the host's for its name, and answers nobody
# until that one has. Here is none. Started again, it has another MAC address, which neighbours
# learn after half a minute. So the server has fixed addresses.
ADDRESS = "10.201.77.200"
OVERRIDE = f"""
x-build: &build {{build: {{context: .., args: {{BASE: {containers.BASE_IMAGE}}}}}}}
services:
  migrate: *build
  server:
    <<: *build
    mac_address: 92:d0:c6:0a:29:33
    networks: {{default: {{ipv4_address: {ADDRESS}}}}}
  worker: *build
  caddy:
    image: {containers.BASE_IMAGE}
    command: [caddy, run, --config, /etc/caddy/Caddyfile, --adapter, caddyfile]
    environment: {{XDG_DATA_HOME: /data, BUFFER_REQUESTS: buffer_requests}}
    ports: !override []
    extra_hosts: ["server:{ADDRESS}"]
networks:
  default: {{ipam: {{config: [{{subnet: 10.201.77.0/24}}]}}}}
"""
LAST_LINES = 2000


class Engine:
    """A folder with the source archive of a release, and `docker`."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        self.printed = self.build = ""

    def run(self, script: str, stdin: str = "", *, check: bool = True) -> str:
        """A script of the shell, in the folder in which the one before ended."""
        where = self.folder / "where"
        script = f"cd $(cat {where})\n{script}\npwd >{where}\n"
        done = subprocess.run(
            ["bash", "-e", "-c", script], env=self.environ, input=stdin, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=300,
        )  # fmt: skip
        self.printed += f"$ {script}\n{done.stdout}"
        assert not check or done.returncode == 0, f"{script}\n{done.stdout[-LAST_LINES:]}"
        return done.stdout


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    environ = containers.engine()
    subprocess.run([BIN / "uv", "build", "-q", "--sdist", "--out-dir", tmp_path, ROOT], check=True)
    requirements = [ROOT / "requirements" / name for name in ("server.txt", "build.txt")]
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    offline = f"--network none --volume {machines.wheels(*requirements)}:/wheels:ro"
    docker.write_text(DOCKER.format(bin=BIN, offline=offline))
    docker.chmod(0o755)
    (tmp_path / "where").write_text(str(tmp_path))
    made = Engine(tmp_path, environ | {"PATH": f"{docker.parent}:{BIN}:{os.environ['PATH']}"})
    made.build = f"podman build -q {offline} --build-arg BASE={containers.BASE_IMAGE} -t sso .."
    try:
        yield made
    finally:
        made.run(
            "docker compose logs; docker compose down --volumes; podman image prune -f", check=False
        )
        (ROOT / "build").mkdir(exist_ok=True)
        (ROOT / "build" / "test_containers.log").write_text(made.printed)


def test_one_machine_with_compose(engine: Engine) -> None:
    (archive,) = engine.folder.glob("sso-*.tar.gz")
    version, left_out = archive.name.removeprefix("sso-").removesuffix(".tar.gz"), []
    for text, _, reason in blocks("container.md"):
        if reason:
            left_out.append(f"{reason}:\n{text}")
            continue
        if "VERSION=" in text:
            text = text.replace("VERSION=0.1.0", f"VERSION={version}")
            text += "\nsed -i '0,/^{$/s//{\\n\\tlocal_certs/' Caddyfile"
            (engine.folder / "test.yaml").write_text(OVERRIDE)
            text += "\ncp ../../test.yaml .."
        # No mail server: mail goes to the log.
        text = "\n".join(line for line in text.splitlines() if "SSO_SMTP_URL" not in line)
        if "user create" in text:
            create, _, rest = text.partition("\n")
            engine.run(f"{create} --password-stdin", PASSWORD + "\n")
            text = rest
        if "up --detach" in text:  # three services have this image; Docker builds it once
            engine.run(engine.build)
        shown = engine.run(text)
        if "up --detach" in text or "start server" in text:
            _wait_until_healthy(engine)
        if "up --detach" in text:
            _is_confined(engine)
            _trust_caddy(engine)
        elif "doctor" in text or "start server" in text:
            _sign_in(engine)
        elif "drill.db" in text:
            assert "you@example.com" in shown
    (backup,) = engine.folder.glob("sso-*/deploy/sso-*.sqlite")
    assert backup.read_bytes().startswith(b"SQLite format 3")
    _restarts_unnoticed(engine)
    _stops_at_once(engine)
    sys.stdout.write("not run:\n" + "\n".join(left_out))


def _wait_until_healthy(engine: Engine) -> None:
    check = "podman healthcheck run sso_server_1 && echo it is healthy"
    wait_for(lambda: "it is healthy" in engine.run(check, check=False), "the health check", 60)


def _is_confined(engine: Engine) -> None:
    confined = engine.run(
        "podman exec sso_server_1 sh -c 'id -u; touch /app 2>&1; cat /proc/1/comm; "
        "grep ^Cap /proc/1/status; grep ^NoNew /proc/1/status'",
        check=False,
    )
    for expected in ("10001\n", "Read-only file system", "tini\n", "CapEff:\t0000000000000000",
                     "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):  # fmt: skip
        assert expected in confined, confined


def _trust_caddy(engine: Engine) -> None:
    root = "/data/caddy/pki/authorities/local/root.crt"
    wait_for(
        lambda: "BEGIN" in engine.run(f"podman exec sso_caddy_1 cat {root}", check=False), "Caddy"
    )
    engine.run(
        f"podman exec sso_caddy_1 cat {root} | "
        "podman exec -i sso_worker_1 sh -c 'cat >/var/lib/sso/ca.crt'"
    )


def _sign_in(engine: Engine) -> None:
    page = (
        "podman exec -e REQUESTS_CA_BUNDLE=/var/lib/sso/ca.crt sso_worker_1 python -c "
        f"'import requests; print(requests.get(\"{BASE}/sign-in\", timeout=9))'"
    )
    wait_for(lambda: "[200]" in engine.run(page, check=False), "the way through Caddy", 60)
    client = engine.run(f"podman exec sso_worker_1 {NEW_CLIENT} 2>/dev/null")
    (engine.folder / "client").write_text(client)
    shown = engine.run(
        'podman exec -i -e REQUESTS_CA_BUNDLE=/var/lib/sso/ca.crt -e CLIENT="$(cat '
        f"{engine.folder}/client)\" sso_worker_1 python - {BASE} you@example.com '{PASSWORD}'",
        SIGN_IN,
    )
    assert SIGNED_IN in shown, shown


# Pages that are asked for through Caddy while the server restarts: each is answered.
VISITOR = f"""
import time, requests
seen, end = [], time.monotonic() + 15
while time.monotonic() < end:
    seen.append(requests.get("{BASE}/sign-in", timeout=30).status_code)
    time.sleep(0.1)
print("pages:", set(seen))
"""


def _restarts_unnoticed(engine: Engine) -> None:
    visit = ["podman", "exec", "-i", "-e", "REQUESTS_CA_BUNDLE=/var/lib/sso/ca.crt",
             "sso_worker_1", "python", "-c", VISITOR]  # fmt: skip
    with subprocess.Popen(visit, env=engine.environ, text=True, stdout=subprocess.PIPE) as visitor:
        time.sleep(3)
        engine.run("podman stop --time 30 sso_server_1; podman start sso_server_1")
        shown, _ = visitor.communicate(timeout=60)
    assert shown == "pages: {200}\n"


def _stops_at_once(engine: Engine) -> None:
    """Also while Python is still loading, which was lost without another first process."""
    for pause in (0, 0.3, 5):
        engine.run("podman start sso_server_1")
        time.sleep(pause)
        begun = time.monotonic()
        engine.run("podman stop --time 30 sso_server_1")
        assert time.monotonic() - begun < 10
        code = engine.run("podman inspect sso_server_1 --format '{{.State.ExitCode}}'")
        assert code.split()[-1] in ("0", "143")


def test_every_wheel_is_there_for_arm64(tmp_path: Path) -> None:
    """Nothing is compiled in the image, which has no compiler."""
    for machine in ("aarch64", "x86_64"):
        subprocess.run(
            [BIN / "uv", "pip", "compile", "-q", "--no-config", "--only-binary=:all:",
             f"--python-platform={machine}-unknown-linux-gnu", "--python-version=3.13",
             ROOT / "requirements" / "server.txt", "-o", tmp_path / machine],
            check=True, timeout=120,
        )  # fmt: skip
