"""MCP clients as their makers publish them, connected to MCP servers that this server protects.

Their own code finds this server, registers and gets tokens, by a metadata document and by open
registration. A person signs in and allows them on our pages, and they call a tool. The conformance
tool of MCP plays a client, too, and judges what this server answers.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from sso.checkup.sign_in import Browser
from tests.applications.software import OpenedBrowser, environ, node, node_program, python
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


def ways(usual: str, rare: str) -> pytest.MarkDecorator:
    """How a client becomes known: each way is usual for some, and each has both."""
    return pytest.mark.parametrize(
        "by_document",
        [
            pytest.param(usual == "document", id=usual),
            pytest.param(rare == "document", id=rare, marks=pytest.mark.exhaustive),
        ],
    )


SDKS = {
    "Python SDK": "document",
    "TypeScript SDK 1": "registration",
    "TypeScript SDK 2": "document",
}


def command(sdk: str, folder: Path) -> list[str]:
    """The program of `programs` for this SDK."""
    if sdk == "Python SDK":
        return [str(python("fastmcp") / "bin/python"), str(PROGRAMS / "mcp_client.py")]
    program = shutil.copy(PROGRAMS / "mcp_client.mjs", folder)
    (folder / "node_modules").symlink_to(node("mcp-clients") / "node_modules")
    return [str(node_program()), str(program), sdk[-1]]


@pytest.mark.parametrize(
    ("sdk", "by_document"),
    [
        pytest.param(
            sdk, way == "document", id=f"{sdk}-{way}",
            marks=() if way == usual else pytest.mark.exhaustive,
        )
        for sdk, usual in SDKS.items()
        for way in ("document", "registration")
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "software", ["fastmcp", pytest.param("typescript-1", marks=pytest.mark.exhaustive)]
)
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


@contextmanager
def started(tmp_path: Path, *command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A program of `locks/mcp-tools`, by its path and with its arguments."""
    program = node("mcp-tools") / "node_modules" / command[0]
    with (
        (tmp_path / "errors").open("w") as log,
        subprocess.Popen(
            [str(node_program()), str(program), *command[1:]],
            cwd=tmp_path,
            env={**environ(), "HOME": str(tmp_path), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process
        except BaseException as error:
            error.add_note((tmp_path / "errors").read_text()[-8000:])
            raise
        finally:
            process.kill()


def be_the_person(scene: Scene, url: str, name: str, document: str | None) -> None:
    """Allow what asks at this URL, and come back to where it listens."""
    query = parse_qs(urlsplit(url).query)
    [client_id], [callback] = query["client_id"], query["redirect_uri"]
    assert (client_id == document) is (document is not None)
    arrived = scene.arrive(url, callback, name, DOMAIN if document else None)
    assert requests.get(arrived, timeout=60).ok


@ways("registration", rare="document")
def test_mcp_remote(scene: Scene, tmp_path: Path, by_document: bool) -> None:
    """It stands between the MCP server and a program that speaks to it in lines."""
    browser, port = OpenedBrowser(tmp_path), str(free_port())
    arguments, document, name = [scene.servers["typescript-1"], port], None, "MCP CLI Proxy"
    if by_document:
        document = scene.host.publish(
            "mcp-remote/client.json",
            client_name=(name := "mcp-remote"),
            redirect_uris=["http://localhost/oauth/callback"],
        )
        arguments += ["--client-metadata-url", document]
    program = "mcp-remote/dist/proxy.js"
    with started(tmp_path, program, *arguments, **browser.environ) as process:
        assert process.stdin
        assert process.stdout

        def send(method: str, **fields: object) -> None:
            assert process.stdin
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **fields}) + "\n")
            process.stdin.flush()

        client = {"name": "test", "version": "1.0.0"}
        offered = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        send("initialize", id=1, params=offered)
        be_the_person(scene, browser.url(), name, document)
        assert json.loads(process.stdout.readline())["id"] == 1
        send("notifications/initialized")
        send("tools/call", id=2, params={"name": "latest", "arguments": {}})
        called = json.loads(process.stdout.readline())
    assert called["result"]["content"][0]["text"] == "Buy milk."


INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
# It needs neither a terminal to open the browser nor a keyring.
ALONE = {"MCP_AUTO_OPEN_ENABLED": "true", "MCP_INSPECTOR_SECRET_STORE": "file"}


@ways("document", rare="registration")
def test_the_inspector(scene: Scene, tmp_path: Path, by_document: bool) -> None:
    browser = OpenedBrowser(tmp_path)
    document, name = None, "MCP Inspector"
    arguments = ["--cli", "--server-url", scene.servers["typescript-1"], "--transport", "http"]
    arguments += ["--method", "tools/call", "--tool-name", "latest", "--format", "json"]
    arguments += ["--callback-url", f"http://127.0.0.1:{free_port()}/oauth/callback"]
    if by_document:
        document = scene.host.publish(
            "inspector/client.json",
            client_name=(name := "The inspector"),
            redirect_uris=["http://127.0.0.1/oauth/callback"],
        )
        arguments += ["--client-metadata-url", document]
    with started(tmp_path, INSPECTOR, *arguments, **ALONE, **browser.environ) as process:
        be_the_person(scene, browser.url(), name, document)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    assert "Buy milk." in printed


@ways("document", rare="registered")
def test_the_conformance_tool(scene: Scene, tmp_path: Path, by_document: bool) -> None:
    """Its scenarios for authorization servers: metadata, and the grant of a code."""
    port, name = free_port(), "Conformance"
    callback, resource = f"http://127.0.0.1:{port}/callback", scene.servers["typescript-1"]
    if by_document:
        redirect_uris = ["http://127.0.0.1/callback"]
        client_id = scene.host.publish(
            "conformance/client.json", client_name=name, redirect_uris=redirect_uris
        )
    else:
        options = ("--public", "--api", f"{resource}=read")
        client_id = scene.server.register(name, callback, *options)["client_id"]
    results = tmp_path / "results"
    arguments = ["--url", scene.server.base_url, "--client-id", client_id, "--port", str(port)]
    arguments += ["--resource", resource, "-o", str(results)]
    program = "@modelcontextprotocol/conformance/dist/index.js"
    with started(tmp_path, program, "authorization", *arguments) as process:
        assert process.stdout
        lines = iter(process.stdout.readline, "")
        url = next(line.strip() for line in lines if AUTHORIZE.fullmatch(line.strip()))
        if by_document:
            be_the_person(scene, url, name, client_id)
        else:
            visitor = Browser(scene.server.base_url, callback)
            page = visitor.submit(visitor.open(url), {"email": EMAIL, "password": PASSWORD})
            assert requests.get(visitor.submit(page, {"decision": "allow"}).url, timeout=60).ok
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0, printed
    checks = [json.loads(file.read_text()) for file in results.glob("*/checks.json")]
    assert {check["id"]: check["status"] for each in checks for check in each} == {
        "authorization-server-metadata": "SUCCESS",
        "authorization-server-metadata-cimd": "SUCCESS",
        "authorization-code-grant": "SUCCESS",
    }
