"""The ready lines of `flask mcp show`, each run as it is printed, and checked as a client does.

Traefik's cannot run here: only its syntax is read.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.applications.software import environ, node, node_program, python
from tests.support.mcp_servers import McpServer
from tests.support.processes import Server, free_port, require, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("sso"), workers=1)
    with server.running():
        yield server


def lines(server: Server, url: str, software: str) -> str:
    """Register an MCP server, and return the lines for its software."""
    scopes = ("--scope", "read=Read your notes", "--scope", "write=Change your notes")
    return server.flask("mcp", "add", url, "--name", "Notes", *scopes, "--for", software)


@contextmanager
def running(
    command: Sequence[str | Path],
    url: str,
    folder: Path,
    variables: Mapping[str, str] | None = None,
) -> Iterator[None]:
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [str(each) for each in command],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**environ(), **(variables or {})},
        )
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            try:
                requests.post(url, timeout=5)
            except requests.RequestException:
                return False
            return True

        wait_for(answers, "the program")
        yield
    finally:
        process.terminate()
        process.wait(20)


def check(server: Server, url: str) -> dict[str, str]:
    """Play a client; return what it saw at each step."""
    done = server.try_flask("doctor", "--mcp", url, "--json")
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == 0, findings
    allowed = {"registration"}  # no agent is admitted
    assert {each["name"] for each in findings if each["status"] == "warning"} <= allowed, findings
    return {each["name"]: each["seen"] for each in findings}


SDKS = {
    "fastmcp": "fastmcp",
    "python-1": "mcp-python-1",
    "python-2": "fastmcp",  # it has version 2 of the SDK
}


@pytest.mark.parametrize(
    "software",
    # test_mcp_tutorial.py always runs fastmcp.
    [sdk if sdk == "python-2" else pytest.param(sdk, marks=pytest.mark.exhaustive) for sdk in SDKS],
)
def test_a_server_in_python(server: Server, tmp_path: Path, software: str) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    (tmp_path / "server.py").write_text(lines(server, url, software))
    program = [python(SDKS[software]) / "bin/python", tmp_path / "server.py"]
    with running(program, url, tmp_path):
        seen = check(server, url)
    assert seen["scope"] == "scope is read"
    assert seen["call with token"] == "it answers 200"


@pytest.mark.parametrize(
    "software", [pytest.param("typescript-1", marks=pytest.mark.exhaustive), "typescript-2"]
)
def test_a_server_in_typescript(server: Server, tmp_path: Path, software: str) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    (tmp_path / "server.mjs").write_text(lines(server, url, software))
    (tmp_path / "node_modules").symlink_to(node(f"mcp-{software}") / "node_modules")
    with running([node_program(), tmp_path / "server.mjs"], url, tmp_path):
        seen = check(server, url)
    assert seen["scope"] == "scope is read"
    assert seen["call with token"] == "it answers 200"


def behind(server: Server, port: int, printed: str) -> tuple[str, McpServer]:
    """A server without metadata and without a challenge, and the lines of its proxy for it.

    A public one would listen on port 8000; on this machine, its port is that of its URL.
    """
    mcp = McpServer(server.base_url, challenge="Bearer", places=())
    mcp.audience = f"http://127.0.0.1:{port}/mcp"
    return printed.replace(f"http://127.0.0.1:{port};", f"http://127.0.0.1:{mcp.port};").replace(
        f"reverse_proxy 127.0.0.1:{port} ", f"reverse_proxy 127.0.0.1:{mcp.port} "
    ), mcp


def test_nginx_publishes_and_challenges_for_a_server_that_cannot(
    server: Server, tmp_path: Path
) -> None:
    nginx, port = require("nginx", shutil.which("nginx", path="/usr/sbin:/usr/bin")), free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    text, mcp = behind(server, port, lines(server, url, "nginx"))
    before, comment, inside = text.partition("# In the server block")
    temporary = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{before}\nserver {{ listen 127.0.0.1:{port};\n"
        f"{comment}{inside}\n}} }}\n"
    )
    program: list[str | Path] = [nginx, "-c", configuration, "-e", tmp_path / "e"]
    with mcp.running(), running(program, url, tmp_path):
        assert check(server, url)["call with token"] == "it answers 200"
        refused = requests.post(url, timeout=60).headers["WWW-Authenticate"]
    assert refused == f'Bearer resource_metadata="{well_known(port)}", scope="read"'


def test_caddy_publishes_and_challenges_for_a_server_that_cannot(
    server: Server, tmp_path: Path
) -> None:
    caddy, port = require("caddy", shutil.which("caddy")), free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    text, mcp = behind(server, port, lines(server, url, "caddy"))
    (tmp_path / "Caddyfile").write_text(
        f"{{\nadmin off\nauto_https off\n}}\nhttp://127.0.0.1:{port} {{\nbind 127.0.0.1\n{text}}}\n"
    )
    program: list[str | Path] = [
        caddy,
        "run",
        "--config",
        tmp_path / "Caddyfile",
        "--adapter",
        "caddyfile",
    ]
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    with mcp.running(), running(program, url, tmp_path, home):
        assert check(server, url)["call with token"] == "it answers 200"
        refused = requests.post(url, timeout=60).headers["WWW-Authenticate"]
    assert refused == f'Bearer resource_metadata="{well_known(port)}", scope="read"'


def well_known(port: int) -> str:
    return f"http://127.0.0.1:{port}/.well-known/oauth-protected-resource/mcp"


def test_the_lines_for_traefik_are_yaml(server: Server) -> None:
    yaml = pytest.importorskip("yaml")
    url = "https://mcp.example.com/mcp"
    http = yaml.safe_load(lines(server, url, "traefik"))["http"]
    rule = "Host(`mcp.example.com`) && Path(`/.well-known/oauth-protected-resource/mcp`)"
    assert http["routers"]["mcp-metadata"]["rule"] == rule
    path = http["middlewares"]["mcp-metadata"]["replacePath"]["path"]
    assert path.startswith("/api/auth/protected-resource/api-")
