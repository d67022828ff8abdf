"""`flask doctor --mcp` against an MCP server that is right, and against broken ones."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner, Result
from flask import Response
from sqlalchemy import create_engine, text

from sso.doctor.command import doctor_command
from tests.operations.conftest import command
from tests.support.mcp_servers import McpServer, moved
from tests.support.processes import ROOT, Server, free_port

pytestmark = pytest.mark.slow
MCP, HERE, PERSON = "the MCP server", "this server", "the person's rights here"
GUIDE = (ROOT / "docs/how-to/mcp-faults.md").read_text()
PROXY = "the proxy in front of this server"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("doctor"), workers=1)
    with server.running():
        yield server


@dataclass
class Report:
    exit_code: int
    findings: list[dict[str, Any]]

    def named(self, name: str) -> list[dict[str, Any]]:
        return [finding for finding in self.findings if finding["name"] == name]

    @property
    def fault(self) -> dict[str, Any]:
        """The only fault."""
        (finding,) = [each for each in self.findings if each["status"] == "wrong"]
        assert self.exit_code == 1
        return finding

    def blames(self, name: str, party: str, *texts: str) -> None:
        """The first fault is at this step, of this party, and says all this; the rest waits."""
        fault = self.fault
        assert (fault["name"], fault["party"]) == (name, party), fault
        for each in texts:
            assert each in f"{fault['seen']} {fault['hint']}", fault
        after = self.findings[self.findings.index(fault) + 1 :]
        assert all(each["status"] == "skipped" for each in after)


def examine(server: Server, *arguments: str) -> Report:
    done = invoke(server, *arguments, "--json")
    return Report(done.exit_code, json.loads(done.stdout)["findings"])


def invoke(server: Server, *arguments: str) -> Result:
    """Run the command with the settings of the server."""
    inherited = {name: None for name in os.environ if name.startswith("SSO_")}
    settings = {k: v for k, v in server.environ.items() if k.startswith("SSO_")}
    done = CliRunner().invoke(doctor_command, ["--mcp", *arguments], env={**inherited, **settings})
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done


def register(server: Server, mcp: McpServer, *options: str) -> str:
    """Register the server as an API with the scope `read`."""
    printed = command(
        server,
        *("api", "create", "--identifier", mcp.url, "--name", "Notes", "--json"),
        *("--scope", "read=Read your notes", *options),
    )
    return str(json.loads(printed)["api_id"])


def rows(server: Server) -> dict[str, int]:
    """The temporary rows that would be left behind."""
    engine = create_engine(server.environ["SSO_DATABASE_URL"])
    try:
        with engine.connect() as connection:
            return {
                table: connection.execute(text(f"SELECT count(*) FROM {table}")).scalar() or 0
                for table in ("users", "clients")
            }
    finally:
        engine.dispose()


def test_all_is_well_with_a_server_that_is_right(server: Server) -> None:
    before = rows(server)
    challenge = 'Bearer resource_metadata="{metadata}", scope="read write"'
    with McpServer(server.base_url, challenge=challenge).running() as mcp:
        register(server, mcp, "--scope", "write=Change your notes")
        report = examine(server, mcp.url)
    problems = [each for each in report.findings if each["status"] in ("wrong", "warning")]
    seen = [(each["name"], each["seen"][:40]) for each in problems]
    # Until documents or open registration are switched on.
    assert [name for name, _ in seen if name != "server metadata"] == ["registration"], problems
    assert report.exit_code == 0
    (audience,) = report.named("audience")
    assert mcp.url in audience["seen"]
    (scope,) = report.named("scope")
    assert scope["seen"] == "scope is read write"
    tokens = [each["token"] for each in mcp.calls]
    assert tokens[0] == ""
    assert len(set(tokens)) == 4  # none, good, forged, for userinfo
    assert rows(server) == before


def faults(issuer: str) -> dict[str, dict[str, Any]]:
    """What is wrong with the MCP servers of the guide, by its headings."""
    reads = {"document": {"scopes_supported": ["read"]}}
    return {
        "It is not protected": {"answer": dict},
        "It publishes no metadata": {"challenge": "Bearer", "places": ()},
        "It does not know its public URL": {"document": {"resource": "http://backend:8000/mcp"}},
        "It names the issuer with a slash": {"document": {"authorization_servers": [f"{issuer}/"]}},
        "It expects another audience": {"audience": "https://notes.example.com"},
        "It expects another algorithm": {"algorithms": ("RS256",)},
        "It accepts tokens for others": {"verifies_audience": False, "required": "", **reads},
        "It requires a scope that it did not ask for": {"required": "write", **reads},
    }


def test_the_guide_has_these_faults() -> None:
    assert re.findall(r"^## (.+)$", GUIDE, re.MULTILINE) == list(faults(""))


@pytest.mark.parametrize("heading", faults(""))
def test_a_fault_is_named_as_in_the_guide(server: Server, heading: str) -> None:
    with McpServer(server.base_url, **faults(server.base_url)[heading]).running() as mcp:
        register(server, mcp, "--scope", "write=Change your notes")
        done = invoke(server, mcp.url)
    assert done.exit_code == 1
    # The first line with its remedy; those after it wait.
    _, fault, rest = re.split(r"^(wrong .*\n(?: .*\n)+)", done.stdout, flags=re.MULTILINE)
    assert all(line.startswith("skipped") for line in rest.splitlines())
    shown = fault.replace(mcp.origin, "https://mcp.example.com")
    shown = shown.replace(server.origin, "https://login.example.com")
    shown = re.sub(r"/api-[\w-]{22}", "/api-02chzDc_IWK-YDNzXKAX1w", shown)
    assert f"## {heading}\n\n```text\n{shown}```\n" in GUIDE


def test_a_server_that_names_no_metadata_and_has_none(server: Server) -> None:
    with McpServer(server.base_url, challenge="Bearer", places=()).running() as mcp:
        api_id = register(server, mcp)
        report = examine(server, mcp.url)
    report.blames("resource metadata", MCP, f"/protected-resource/{api_id}", mcp.metadata_url)
    assert report.named("challenge")[0]["status"] == "warning"


def test_a_server_with_a_page_in_place_of_metadata(server: Server) -> None:
    mcp = McpServer(server.base_url)
    mcp.metadata = lambda: Response("<!doctype html>")  # type: ignore[method-assign]
    mcp.flask.view_functions[mcp.places[0]] = mcp.metadata
    with mcp.running():
        register(server, mcp)
        examine(server, mcp.url).blames("resource metadata", MCP, "not with a JSON object")


def test_a_server_that_protects_its_metadata(server: Server) -> None:
    mcp = McpServer(server.base_url)
    mcp.flask.view_functions[mcp.places[0]] = lambda: mcp.refuse(401, "")
    with mcp.running():
        register(server, mcp)
        examine(server, mcp.url).blames("resource metadata", MCP, "asks for a token itself")


def test_a_server_that_names_another_issuer(server: Server) -> None:
    document = {"authorization_servers": ["https://accounts.example.com"]}
    with McpServer(server.base_url, document=document).running() as mcp:
        register(server, mcp)
        examine(server, mcp.url).blames("authorization server", MCP, "accounts.example.com")


def test_a_server_that_redirects(server: Server) -> None:
    with McpServer(server.base_url, answer=moved("/mcp/")).running() as mcp:
        register(server, mcp)
        examine(server, mcp.url).blames("call without token", MCP, "redirects to /mcp/")


def test_a_server_that_verifies_no_signature(server: Server) -> None:
    with McpServer(server.base_url, verifies_signature=False).running() as mcp:
        register(server, mcp)
        examine(server, mcp.url).blames("foreign tokens", MCP, "a forged signature")


def test_a_server_that_wants_a_scope_that_is_not_registered(server: Server) -> None:
    challenge = 'Bearer resource_metadata="{metadata}", scope="read admin"'
    with McpServer(server.base_url, challenge=challenge).running() as mcp:
        api_id = register(server, mcp)
        examine(server, mcp.url).blames("scopes", HERE, "admin", f"api update {api_id}")


def test_a_server_that_is_down(server: Server) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    examine(server, url).blames("call without token", MCP, "nothing listens")


def test_a_server_that_is_not_registered(server: Server) -> None:
    with McpServer(server.base_url).running() as mcp:
        examine(server, mcp.url).blames("API", HERE, f"mcp add {mcp.url}")


def test_a_person_outside_of_the_group(server: Server) -> None:
    server.flask(
        *("user", "create", "--email", "ada@example.com", "--name", "Ada", "--password-stdin"),
        stdin="a long and good password\n",
    )
    with McpServer(server.base_url).running() as mcp:
        register(server, mcp, "--group", "engineers")
        assert examine(server, mcp.url).exit_code == 0  # somebody in the group can
        report = examine(server, mcp.url, "--as", "ada@example.com")
        report.blames("person", PERSON, "--add-group engineers")
        command(server, "user", "update", "ada@example.com", "--add-group", "engineers")
        assert examine(server, mcp.url, "--as", "ada@example.com").exit_code == 0


def test_a_client_that_is_not_registered_for_it(server: Server) -> None:
    created = command(
        server,
        *("client", "create", "--name", "Editor", "--public", "--json"),
        *("--redirect-uri", "http://127.0.0.1/callback"),
    )
    client_id = json.loads(created)["client_id"]
    with McpServer(server.base_url).running() as mcp:
        register(server, mcp)
        report = examine(server, mcp.url, "--client", client_id)
        report.blames("client", HERE, f"--add-api {mcp.url}")
        command(server, "client", "update", client_id, "--add-api", mcp.url)
        assert examine(server, mcp.url, "--client", client_id).exit_code == 0
        command(server, "client", "disable", client_id)
        report = examine(server, mcp.url, "--client", client_id)
        report.blames("client", "the client", f"client enable {client_id}")
