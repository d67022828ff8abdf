"""The pages in docs/deploy: their commands in order.

Blocks below a comment `not run: …` are left out; `machine: …` says where the others run.
"""

import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.machines import Machine
from tests.support.processes import ROOT

PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs/deploy").glob("*.md"))}
NEW_CLIENT = (
    "sso client create --name Wiki --redirect-uri https://wiki.example.com/callback "
    "--scope 'openid profile email groups' --json"
)
SIGNED_IN = "signed in: you@example.com ['sso-administrators']"
HOST, PASSWORD = "login.example.com", "correct horse battery"
BASE = f"https://{HOST}/api/auth"
_BLOCK = re.compile(
    r"(?P<notes>(?:^ *<!-- [^\n]* -->\n)*)^(?P<indent> *)```sh\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_NOTE = re.compile(r"<!-- (not run|machine): (.*) -->")
# Be a person with a browser who signs in to a new application; and then be the application.
SIGN_IN = """
import json, os, secrets, sys
from urllib.parse import parse_qs, urlencode, urlsplit
import requests
from sso.checkup.sign_in import Browser

base, email, password = sys.argv[1:4]
client = json.loads(os.environ["CLIENT"])
callback = client["redirect_uris"][0]
asked = {"response_type": "code", "client_id": client["client_id"], "redirect_uri": callback,
         "scope": "openid profile email groups", "state": secrets.token_urlsafe()}
browser = Browser(base, callback)
page = browser.open(f"{base}/oauth2/authorize?{urlencode(asked)}")
page = browser.submit(page, {"email": email, "password": password})
if ("decision", "allow") in page.buttons:
    page = browser.submit(page, {"decision": "allow"})
found = parse_qs(urlsplit(page.url).query)
assert "code" in found, (page.url, page.response.text, page.response.headers)
code = found["code"][0]
tokens = requests.post(f"{base}/oauth2/token", timeout=10, data={
    "grant_type": "authorization_code", "code": code, "redirect_uri": callback,
    "client_id": client["client_id"], "client_secret": client["client_secret"]}).json()
profile = requests.get(f"{base}/oauth2/userinfo", timeout=10,
                       headers={"Authorization": f"Bearer {tokens['access_token']}"})
print("signed in:", profile.json()["email"], profile.json()["groups"])
"""


class Block(NamedTuple):
    text: str
    machines: list[str]
    reason: str  # why it is not run


def blocks(page: str, part: str = "") -> list[Block]:
    """The commands of a page, or of one part of it, in their order."""
    text = PAGES[page]
    if part:
        (text,) = re.findall(rf"^## {part}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    made = []
    for found in _BLOCK.finditer(text):
        notes = _NOTE.findall(found["notes"])
        named = [value for name, value in notes if name == "machine"]
        reasons = [value for name, value in notes if name == "not run"]
        made.append(Block(textwrap.dedent(found["text"]), named, " ".join(reasons)))
    return made


class Releases(NamedTuple):
    old: Path
    old_version: str
    new: Path
    new_version: str
    wheels: Path  # what pip downloads


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


class Reader:
    """Copies the blocks of a page into a root shell, one after the other."""

    def __init__(self, machine: Machine, built: Releases) -> None:
        self.machine, self.built = machine, built
        self.versions = iter([built.old_version, built.new_version])
        self.releases = iter([built.old, built.new])

    def run(self, text: str) -> str:
        """One block, in the folder and with the VERSION that the one before left."""
        if re.search(r"\nVERSION=\d", text):
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
