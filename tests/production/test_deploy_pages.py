"""The pages in docs/deploy, run command by command on bare Debian machines.

What stands in for the reader: versions, a mail server of the test, a certificate authority of the
test, and the password that is asked for.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import machines, releases
from tests.support.deploy_pages import (
    BASE,
    HOST,
    NEW_CLIENT,
    PAGES,
    PASSWORD,
    SIGN_IN,
    SIGNED_IN,
    blocks,
)
from tests.support.machines import Machine
from tests.support.processes import ROOT, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("DEPLOYMENT"),
        reason="boots machines and builds an image, for minutes; with DEPLOYMENT=1 it does",
    ),
]
LOCAL_CERTIFICATES = r"sed -i '0,/^{$/s//{\n\tlocal_certs/' /etc/caddy/Caddyfile"
CERTIFICATE = f"""
mkdir -p /etc/letsencrypt/live/{HOST}
cd /etc/letsencrypt/live/{HOST}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 \\
    -keyout privkey.pem -out fullchain.pem -subj "/CN={HOST}" -addext "subjectAltName=DNS:{HOST}"
"""


class Releases(NamedTuple):
    old: Path
    old_version: str
    new: Path
    new_version: str
    wheels: Path  # what pip downloads


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    machines.needed()
    folder = tmp_path_factory.mktemp("releases")
    tree = releases.previous(folder / "tree")
    releases.as_older_release(tree)
    old, new = (
        releases.build(tree, folder / "old"), releases.build(ROOT, folder / "new")
    )  # fmt: skip
    wheels = machines.wheels(*folder.glob("*/*-requirements.txt"))
    return Releases(folder / "old", old, folder / "new", new, wheels)


@contextmanager
def mail_server(machine: Machine) -> Iterator[Path]:
    """What arrives at port 1025 of a machine ends in this file."""
    path = machine.folder / "mail"
    program = ("-um", "aiosmtpd", "-n", "-c", "aiosmtpd.handlers.Debugging", "stdout")
    with path.open("w") as file, subprocess.Popen(
        [
            *("nsenter", f"--target={machine.init}", "--net", sys.executable, *program),
            *("-l", "127.0.0.1:1025"),
        ],
        stdout=file,
    ) as server:  # fmt: skip
        try:
            yield path
        finally:
            server.kill()


@pytest.fixture
def start(built: Releases, request: pytest.FixtureRequest) -> Iterator[Callable[..., "Reader"]]:
    """Machines by name, all stopped in the end; build/ has what they printed."""
    made: list[Reader] = []
    root = machines.debian(PAGES)

    def start(name: str, hosts: str, beside: Reader | None = None) -> Reader:
        machine = Machine(
            name, root, f"--bind={built.wheels}:/wheels",
            hosts=hosts, beside=beside.machine if beside else None,
        )  # fmt: skip
        made.append(Reader(machine, built))
        return made[-1]

    yield start
    (ROOT / "build").mkdir(exist_ok=True)
    for reader in reversed(made):
        log = ROOT / "build" / f"{request.node.name}-{reader.machine.name}.log"
        log.write_text(reader.machine.printed)
        reader.machine.stop()


class Reader:
    """Copies the blocks of a page into a root shell, one after the other."""

    def __init__(self, machine: Machine, built: Releases) -> None:
        self.machine, self.built = machine, built
        self.versions = iter([built.old_version, built.new_version])
        self.releases = iter([built.old, built.new])

    def run(self, text: str) -> str:
        """One block, in the folder and with the VERSION that the one before left."""
        if "\nVERSION=" in text:
            folder = self.machine.root / "root/sso"
            shutil.copytree(next(self.releases), folder, dirs_exist_ok=True)
            text = re.sub(r"(?<=\nVERSION=).*", next(self.versions), text)
        text = text.replace(
            "smtp://USER:PASSWORD@mail.example.com:587", "smtp://mail.example.com:1025"
        )
        script = f". /run/reader 2>/dev/null || true\n{text}\n"
        script += 'echo "cd $PWD; VERSION=${VERSION-}" >/run/reader\n'
        certificates = "/etc/ssl/certs/ca-certificates.crt"
        return self.machine.run(script, answers=PASSWORD, REQUESTS_CA_BUNDLE=certificates)

    def be_interrupted(self, upgrade: str) -> None:
        """An upgrade that ended while pip was installing: the old version serves on."""
        version = self.built.new_version
        begun = re.sub(r"\nVERSION=.*", f"; VERSION={version}", upgrade).partition("sha256sum")[0]
        shutil.copytree(self.built.new, self.machine.root / "root/sso", dirs_exist_ok=True)
        self.run(
            f"{begun}python3 -m venv --clear /opt/sso/$VERSION\n"
            "timeout 3 /opt/sso/$VERSION/bin/pip install -r sso-$VERSION-requirements.txt || true"
        )
        assert not (self.machine.root / f"opt/sso/{version}/bin/sso").exists()
        assert self.built.old_version in self.run("sso --version")
        self.sign_in()

    def sign_in(self) -> None:
        """Be the administrator with a browser, through the proxy."""
        (self.machine.root / "sign_in.py").write_text(SIGN_IN)
        shown = self.run(
            f'CLIENT="$({NEW_CLIENT} 2>/dev/null)" '
            f"/opt/sso/current/bin/python /sign_in.py {BASE} you@example.com '{PASSWORD}'"
        )
        assert SIGNED_IN in shown

    def trust(self, certificate: str) -> None:
        """Believe this authority, as soon as it is there."""
        self.machine.run(
            f"for _ in $(seq 50); do [ ! -f {certificate} ] || break; sleep 0.1; done\n"
            f"install -m 0644 {certificate} /usr/local/share/ca-certificates/test.crt\n"
            "update-ca-certificates --fresh"
        )


def test_one_machine(start: Callable[..., Reader], built: Releases) -> None:
    reader = start("one", f"127.0.0.1 {HOST} mail.example.com\n")
    machine, left_out = reader.machine, []
    with mail_server(machine) as mail:
        for text, _, reason in blocks("one-machine.md"):
            if reason:
                left_out.append(f"{reason}:\n{text}")
                reader.run(CERTIFICATE)
                reader.trust(f"/etc/letsencrypt/live/{HOST}/fullchain.pem")
                continue
            if restarts_caddy := "systemctl restart caddy" in text:
                text = text.replace("systemctl restart", f"{LOCAL_CERTIFICATES}\nsystemctl restart")
            if "pip install" in text and "restart" in text:
                reader.be_interrupted(text)
            shown = reader.run(text)
            if restarts_caddy:
                reader.trust("/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt")
            elif "sso doctor" in text:
                reader.sign_in()
            elif "user invite" in text:
                wait_for(lambda: f"{BASE}/" in mail.read_text(), "the invitation")
            elif "$DRILL" in text:
                assert "you@example.com" in shown
            elif "/metrics" in text:
                assert "sso_database_up 1.0" in shown
    assert machine.run("sso --version").strip() == built.new_version
    machine.run("chmod o+r /etc/sso/environment")
    assert "readable by everyone" in machine.run("sso user list")
    machine.run("chmod 0640 /etc/sso/environment")
    refused = machine.run("setpriv --reuid=nobody --clear-groups sso user list", check=False)
    assert "Permission denied; run this as the service's user" in refused
    sys.stdout.write("not run:\n" + "\n".join(left_out))


def test_two_nodes(start: Callable[..., Reader], built: Releases) -> None:
    hosts = f"10.0.0.10 {HOST} gate\n127.0.0.1 mail.example.com\n"
    gate = start("gate", hosts)
    enter = ["nsenter", f"--target={gate.machine.init}", "--net"]
    for last in (10, 11, 12):
        address = f"10.0.0.{last}/32"
        subprocess.run([*enter, "ip", "address", "add", address, "dev", "lo"], check=True)
    nodes = [start(name, hosts, gate) for name in ("node-1", "node-2")]
    readers, left_out = {reader.machine.name: reader for reader in (gate, *nodes)}, []

    def install(reader: Reader) -> None:
        for text, _, _ in blocks("one-machine.md", "Install"):
            reader.run(text)

    with ThreadPoolExecutor() as pool:
        list(pool.map(install, nodes))
    one, two = (reader.machine.root for reader in nodes)
    with mail_server(gate.machine):
        for text, names, reason in blocks("two-nodes.md"):
            if reason:
                left_out.append(f"{reason}:\n{text}")
                for name in ("secret_key", "environment"):
                    if not (two / "etc/sso" / name).exists():
                        shutil.copy(one / "etc/sso" / name, two / "etc/sso" / name)
                shutil.copy(ROOT / "deploy/nginx.conf", gate.machine.root / "root")
                continue
            if "nginx -t" in text:
                gate.run(CERTIFICATE)
                certificate = f"/etc/letsencrypt/live/{HOST}/fullchain.pem"
                for reader in nodes:
                    shutil.copy(gate.machine.root / certificate[1:], reader.machine.root)
                    reader.trust("/fullchain.pem")
            shown = [readers[name].run(text) for name in names][-1]
            if text == "sso doctor\n":
                nodes[1].sign_in()
                nodes[0].run("systemctl stop sso.socket sso.service")
                nodes[1].sign_in()
                nodes[0].run("systemctl start sso.socket sso.service")
            elif "/metrics" in text:
                assert shown.count("sso_database_up 1.0") == 2
        nodes[0].sign_in()
    for reader in nodes:
        assert reader.machine.run("sso --version").strip() == built.new_version
    sys.stdout.write("not run:\n" + "\n".join(left_out))
