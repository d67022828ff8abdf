"""The pages in docs/deploy, run command by command on bare Debian machines.

What stands in for the reader: versions, a mail server of the test, a certificate authority of the
test, and the password that is asked for.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.support import machines, releases
from tests.support.deploy_pages import (
    BASE,
    HOST,
    PAGES,
    Reader,
    Releases,
    blocks,
    mail_server,
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

METRICS = "curl --silent http://127.0.0.1:9464/metrics | grep sso_database_up"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    machines.needed()
    folder = tmp_path_factory.mktemp("releases")
    tree = releases.previous(folder / "tree")
    releases.as_older_release(tree)
    old, new = (
        releases.build(tree, folder / "old"), releases.build(ROOT, folder / "new")
    )  # fmt: skip
    wheels = machines.wheels(*folder.glob("*/*-requirements*.txt"))
    return Releases(folder / "old", old, folder / "new", new, wheels)


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


def test_one_machine(start: Callable[..., Reader], built: Releases) -> None:
    reader = start("one", f"127.0.0.1 {HOST} mail.example.com\n")
    machine, left_out = reader.machine, []
    with mail_server(machine) as mail:
        for text, _, reason in blocks("one-machine.md"):
            if reason:
                left_out.append(f"{reason}:\n{text}")
                if "certbot" in text:
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
        left_out += with_granian(reader)
    assert machine.run("sso --version").strip() == built.new_version
    machine.run("chmod o+r /etc/sso/environment")
    assert "readable by everyone" in machine.run("sso user list")
    machine.run("chmod 0640 /etc/sso/environment")
    refused = machine.run("setpriv --reuid=nobody --clear-groups sso user list", check=False)
    assert "Permission denied; run this as the service's user" in refused
    sys.stdout.write("not run:\n" + "\n".join(left_out))


def with_granian(reader: Reader) -> list[str]:
    """The page on granian, with what the other page says on watching; gives what was not run."""
    process = "/proc/$(systemctl show --property=MainPID --value sso.service)"
    program, workers = f"tr '\\0' ' ' <{process}/cmdline", f"cat {process}/task/*/children"
    left_out = []
    for text, _, reason in blocks("granian.md"):
        if reason:
            left_out.append(f"{reason}:\n{text}")
            continue
        reader.run(text)
        reader.sign_in()
        name, other = ("gunicorn", "granian") if "rm " in text else ("granian", "gunicorn")
        shown = reader.run(program)
        assert name in shown
        assert other not in shown
        before = set(reader.run(workers).split())
        reader.run("systemctl reload sso.service")
        reader.sign_in()
        assert reader.run(program) == shown
        ended = partial(lambda old: old.isdisjoint(reader.run(workers).split()), before)
        wait_for(ended, "the end of the old workers")
        # After a reload, the port of the metrics is free until a new worker takes it.
        wait_for(lambda: bool(reader.machine.run(METRICS, check=False)), "the metrics")
        shown = "".join(reader.run(one.text) for one in blocks("one-machine.md", "Watch"))
        assert "sso_database_up 1.0" in shown
        assert "/oauth2/userinfo" in shown
    return left_out


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
        for text, _, reason in blocks("one-machine.md", "Install"):
            if not reason:
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
