"""MCP clients as their makers publish them, connected to MCP servers that this server protects.

Their own code finds this server, registers and gets tokens, by a metadata document and by open
registration. A person signs in and allows them on our pages, and they call a tool.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from sso.checkup.sign_in import Browser
from tests.applications.software import environ, node, node_program, python
from tests.applications.test_mcp_configurations import lines, running
from tests.support.documents import APP, DOMAIN, DocumentHost
from tests.support.processes import Server, free_port

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).parent / "programs"
EMAIL, PASSWORD = "dana@example.com", "correct horse battery"
AUTHORIZE = re.compile(r"http://\S+/oauth2/authorize\?\S+")
COMMENT = "Your tools come here."
IN_PYTHON = '@mcp.tool\ndef latest() -> str:\n    return "Buy milk."\n'
IN_TYPESCRIPT = """
  server.registerTool("latest", { description: "The newest note" }, () => (
    { content: [{ type: "text", text: "Buy milk." }] }
  ));
"""


@dataclass
class Scene:
    """This server, a host of metadata documents, and two MCP servers by the names of their SDKs."""

    server: Server
    host: DocumentHost
    servers: dict[str, str]

    def arrive(self, url: str, callback: str, name: str, domain: str | None) -> str:
        """Be the person: sign in, read who asks, allow it; return where the browser ends."""
        visitor = Browser(self.server.base_url, callback)
        page = visitor.submit(visitor.open(url), {"email": EMAIL, "password": PASSWORD})
        assert page.response is not None
        text = page.response.text
        assert ("decision", "allow") in page.buttons, text
        for shown in (domain or "It registered itself here", name, "Read your notes"):
            assert shown in text
        arrived = visitor.submit(page, {"decision": "allow", "duration": "lasting"}).url
        assert arrived.startswith(callback)
        return arrived


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("clients")
    with ExitStack() as stack:
        host = stack.enter_context(DocumentHost(folder).running())
        server = Server(
            folder,
            workers=1,
            SSL_CERT_FILE=str(host.certificate),
            SSO_CLIENT_DOCUMENTS="listed",
            SSO_OPEN_REGISTRATION="true",
        )
        stack.enter_context(server.running(APP))
        server.flask(
            *("user", "create", "--email", EMAIL, "--name", "Dana", "--password-stdin"),
            stdin=PASSWORD,
        )
        server.flask("mcp", "allow", f"{DOMAIN}:{host.port}")
        servers = {}
        for software in ("fastmcp", "typescript-1"):
            own = folder / software
            own.mkdir()
            servers[software] = url = f"http://127.0.0.1:{free_port()}/mcp"
            text = lines(server, url, software)
            if software == "fastmcp":
                program = [python("fastmcp") / "bin/python", own / "server.py"]
                text = text.replace(f"# {COMMENT}", IN_PYTHON)
            else:
                program = [node_program(), own / "server.mjs"]
                text = text.replace(f"// {COMMENT}", IN_TYPESCRIPT)
                (own / "node_modules").symlink_to(node("mcp-typescript-1") / "node_modules")
            program[1].write_text(text)
            stack.enter_context(running(program, url, own))
        yield Scene(server, host, servers)


SDKS = ("Python SDK", "TypeScript SDK 1", "TypeScript SDK 2")


def command(sdk: str, folder: Path) -> list[str]:
    """The program of `programs` for this SDK."""
    if sdk == "Python SDK":
        return [str(python("fastmcp") / "bin/python"), str(PROGRAMS / "mcp_client.py")]
    program = shutil.copy(PROGRAMS / "mcp_client.mjs", folder)
    (folder / "node_modules").symlink_to(node("mcp-clients") / "node_modules")
    return [str(node_program()), str(program), sdk[-1]]


@pytest.mark.parametrize("by_document", [True, False], ids=["document", "registration"])
@pytest.mark.parametrize(
    "software", ["fastmcp", pytest.param("typescript-1", marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("sdk", SDKS)
def test_an_official_sdk(
    scene: Scene, tmp_path: Path, sdk: str, software: str, by_document: bool
) -> None:
    callback = f"http://127.0.0.1:{free_port()}/callback"
    url = scene.host.publish(
        f"{sdk.replace(' ', '-')}/client.json",
        client_name=sdk,
        redirect_uris=["http://127.0.0.1/callback"],
    )
    options = [url] if by_document else []
    errors = tmp_path / "errors"
    with (
        errors.open("w") as log,
        subprocess.Popen(
            [*command(sdk, tmp_path), scene.servers[software], callback, *options],
            env=environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout
            address = process.stdout.readline().strip()
            assert AUTHORIZE.fullmatch(address), errors.read_text()
            arrived = scene.arrive(address, callback, sdk, DOMAIN if by_document else None)
            printed, _ = process.communicate(arrived + "\n", timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, errors.read_text()
    said = json.loads(printed)
    assert said["text"] == "Buy milk."
    assert "read" in said["scope"].split()
    assert (said["client_id"] == url) is by_document
