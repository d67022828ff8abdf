"""The pages in docs/deploy, run command by command on bare Debian machines.

What stands in for the reader: versions, a mail server of the test, a certificate authority of the
test, and the password that is asked for. Blocks below a comment `not run: …` are left out.
"""

import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import machines, releases
from tests.support.machines import Machine
from tests.support.processes import ROOT, wait_for

pytestmark = pytest.mark.slow
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs/deploy").glob("*.md"))}
HOST, PASSWORD = "login.example.com", "correct horse battery"
BASE = f"https://{HOST}/api/auth"
_BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>.*?) -->\n)?"
    r"^(?P<indent> *)```sh\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SIGN_IN = """
import json, secrets, sys
from urllib.parse import parse_qs, urlencode, urlsplit
import requests
from sso.doctor.browser import Browser

base, email, password = sys.argv[1:4]
client = json.load(sys.stdin)
callback = client["redirect_uris"][0]
asked = {"response_type": "code", "client_id": client["client_id"], "redirect_uri": callback,
         "scope": "openid profile email groups", "state": secrets.token_urlsafe()}
browser = Browser(base, callback)
page = browser.open(f"{base}/oauth2/authorize?{urlencode(asked)}")
page = browser.submit(page, {"email": email, "password": password})
if ("decision", "allow") in page.buttons:
    page = browser.submit(page, {"decision": "allow"})
code = parse_qs(urlsplit(page.url).query)["code"][0]
tokens = requests.post(f"{base}/oauth2/token", timeout=10, data={
    "grant_type": "authorization_code", "code": code, "redirect_uri": callback,
    "client_id": client["client_id"], "client_secret": client["client_secret"]}).json()
profile = requests.get(f"{base}/oauth2/userinfo", timeout=10,
                       headers={"Authorization": f"Bearer {tokens['access_token']}"})
print("signed in:", profile.json()["email"], profile.json()["groups"])
"""


LOCAL_CERTIFICATES = r"sed -i '0,/^{$/s//{\n\tlocal_certs/' /etc/caddy/Caddyfile"
CERTIFICATE = f"""
mkdir -p /etc/letsencrypt/live/{HOST}
cd /etc/letsencrypt/live/{HOST}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 \\
    -keyout privkey.pem -out fullchain.pem -subj "/CN={HOST}" -addext "subjectAltName=DNS:{HOST}"
"""


class Block(NamedTuple):
    text: str
    reason: str | None  # why it is not run


def blocks(page: str) -> list[Block]:
    return [
        Block(textwrap.dedent(found["text"]), found["reason"])
        for found in _BLOCK.finditer(PAGES[page])
    ]


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


@pytest.fixture
def machine(built: Releases, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(
        "one", tmp_path / "one", machines.debian(PAGES), f"--bind={built.wheels}:/wheels",
        hosts=f"127.0.0.1 {HOST} mail.example.com\n",
    )  # fmt: skip
    mail = (made.folder / "mail").open("w")
    handler = ("-c", "aiosmtpd.handlers.Debugging", "stdout", "-l", "127.0.0.1:1025")
    server = subprocess.Popen(
        ["nsenter", f"--target={made.init}", "--net", sys.executable, "-um", "aiosmtpd", "-n",
         *handler], stdout=mail,
    )  # fmt: skip
    try:
        yield made
    finally:
        (ROOT / "build").mkdir(exist_ok=True)
        (ROOT / "build" / "one-machine.log").write_text(made.printed)
        server.kill()
        server.wait(10)
        mail.close()
        made.stop()


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

    def sign_in(self) -> None:
        """Be the administrator with a browser, through the proxy."""
        (self.machine.root / "sign_in.py").write_text(SIGN_IN)
        shown = self.run(
            "sso client create --name Wiki --redirect-uri https://wiki.example.com/callback "
            f"--scope 'openid profile email groups' --json | "
            f"/opt/sso/current/bin/python /sign_in.py {BASE} you@example.com '{PASSWORD}'"
        )
        assert "signed in: you@example.com ['sso-administrators']" in shown

    def trust(self, certificate: str) -> None:
        self.machine.run(
            f"install -m 0644 {certificate} /usr/local/share/ca-certificates/test.crt\n"
            "update-ca-certificates --fresh"
        )


def test_one_machine(machine: Machine, built: Releases) -> None:
    reader, left_out = Reader(machine, built), []
    for text, reason in blocks("one-machine.md"):
        if reason:
            left_out.append(f"{reason}: {text}")
            reader.run(CERTIFICATE)
            reader.trust(f"/etc/letsencrypt/live/{HOST}/fullchain.pem")
            continue
        if restarts_caddy := "systemctl restart caddy" in text:
            text = text.replace("systemctl restart", f"{LOCAL_CERTIFICATES}\nsystemctl restart")
        shown = reader.run(text)
        if restarts_caddy:
            certificate = "/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt"
            reader.run(f"for _ in $(seq 50); do [ ! -f {certificate} ] || break; sleep 0.1; done")
            reader.trust(certificate)
        elif "sso doctor" in text:
            reader.sign_in()
        elif "user invite" in text:
            mail = machine.folder / "mail"
            wait_for(lambda mail=mail: f"{BASE}/" in mail.read_text(), "the invitation")  # type: ignore[misc]
        elif "sso restore $BACKUP" in text:
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
