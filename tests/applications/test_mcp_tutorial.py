"""The tutorial "Protect an MCP server", block by block, in a folder with nothing of its reader.

What stands in for the reader: free ports instead of the tutorial's, virtual environments that are
installed already, and somebody at the browser.
"""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from sso.checkup.sign_in import Browser
from tests.applications.software import OpenedBrowser, environ, python
from tests.clients.test_readme import BLOCK, PASSWORD, running, typed
from tests.support.processes import ROOT, Server, free_port

pytestmark = pytest.mark.slow
TEXT = (ROOT / "docs/tutorial-mcp.md").read_text()
COMMENT = "# Your tools come here."
INSTALLS = re.compile(r"python3 -m venv (\S+)\n\1/bin/pip install -q (.+)\n")


class Reader:
    """Who works through the blocks from the first to the last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "sso"
        self.folder.mkdir()
        for file in ("wsgi.py", "gunicorn.conf.py", "constraints.txt"):
            (self.folder / file).symlink_to(ROOT / file)
        self.server, self.port = Server(folder), free_port()
        own = {k: v for k, v in self.server.environ.items() if k.startswith("SSO_")}
        self.server.environ = {**environ(), **own}
        self.mcp = f"http://127.0.0.1:{self.port}/mcp"
        self.blocks = iter(BLOCK.findall(TEXT))
        self.installed: dict[str, str] = {}

    def next(self, language: str) -> str:
        """The next block, on the ports of this test, without its installation."""
        _, kind, text = next(self.blocks)
        assert kind == language, text
        text = text.replace("127.0.0.1:8001", f"127.0.0.1:{self.port}")
        if installation := INSTALLS.match(text):
            name, self.installed[name] = installation[1], installation[2]
            existing = Path(sys.prefix) if name == ".venv" else python("fastmcp")
            (self.folder / name).symlink_to(existing)
        return INSTALLS.sub("", text)

    def type(self, script: str) -> str:
        """Run a script in the folder; return what it printed."""
        return typed(self.server, script, self.folder)

    def connect(self, script: str) -> str:
        """Run the client, be the person at its browser; return what the client printed."""
        browser = OpenedBrowser(self.folder)
        errors = self.folder / "errors"
        with (
            errors.open("w") as log,
            subprocess.Popen(
                ["sh", "-e", "-c", script.replace("notes/bin/", "exec notes/bin/")],
                cwd=self.folder,
                env={**environ(), **browser.environ},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            try:
                url = browser.url()
                [callback] = parse_qs(urlsplit(url).query)["redirect_uri"]
                visitor = Browser(self.server.base_url, callback)
                form = {"email": "you@example.com", "password": PASSWORD}
                page = visitor.submit(visitor.open(url), form)
                assert page.response is not None
                for shown in ("a program on this device", "Notes", "Read your notes"):
                    assert shown in page.response.text
                allowed = visitor.submit(page, {"decision": "allow"}).url
                assert requests.get(allowed, timeout=60).ok
                printed, _ = process.communicate(timeout=30)
            finally:
                process.kill()
        assert process.returncode == 0, errors.read_text()
        return printed


def test_every_block_of_the_tutorial(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    server = reader.server
    reader.type(reader.next("sh"))
    with running(server, reader.next("sh"), reader.folder, f"{server.origin}/readyz"):
        reader.type(reader.next("sh"))
        program = reader.folder / "notes.py"
        source = program.read_text()
        assert source.count(COMMENT) == 1
        assert f"`{COMMENT}`" in TEXT
        program.write_text(source.replace(COMMENT, reader.next("python")))
        start = reader.next("sh").replace("notes/bin/", "exec notes/bin/")
        with running(server, start, reader.folder, reader.mcp, status=401):
            findings = reader.type(reader.next("sh")).splitlines()
            assert {line.split()[0] for line in findings} <= {"ok", "skipped"}
            (reader.folder / "client.py").write_text(reader.next("python"))
            assert reader.connect(reader.next("sh")) == "Buy milk.\n"
            assert next(reader.blocks, None) is None
        (removal,) = re.findall(r"`(\.venv/bin/flask mcp remove http\S+)`", TEXT)
        server.flask(*removal.replace("8001", str(reader.port)).split()[1:], "--yes")
        assert reader.mcp not in server.flask("mcp", "list")
    assert reader.installed == {".venv": "-c constraints.txt -e .", "notes": "fastmcp"}
