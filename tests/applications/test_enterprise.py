"""Enterprise-managed authorization with two servers of ours, and the MCP Inspector as the client.

The one at localhost knows the person, and issues identity assertions. The other one, at 127.0.0.1,
takes them for an MCP server that it protects: the person is asked nothing there.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser as Chrome

from sso.checkup.sign_in import Browser
from tests.applications.conftest import DANA, PASSWORD, press
from tests.applications.software import OpenedBrowser, node, node_program
from tests.applications.test_mcp_clients import ALONE, COMMENT, IN_TYPESCRIPT, INSPECTOR, started
from tests.applications.test_mcp_configurations import lines, running
from tests.support.documents import APP
from tests.support.listeners import certificate
from tests.support.processes import Server, free_port

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # two servers, a browser, two programs
UPSTREAM = """
[provider.work]
type = "oidc"
name = "Work"
issuer = "{issuer}"
client_id = "{client_id}"
client_secret_file = "{secret}"
allow_private_addresses = true
trust_email = true
sign_up = true
"""


@contextmanager
def over_tls(server: Server, host: str, own: Path, *arguments: str) -> Iterator[None]:
    """Run the server at https://HOST with its own certificate."""
    server.origin = f"https://{host}:{server.port}"
    server.base_url = server.environ["SSO_BASE_URL"] = f"{server.origin}/api/auth"
    with server.running(*arguments, "--certfile", str(own), "--keyfile", str(own)):
        yield


def test_the_inspector(tmp_path: Path, chrome: Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates = {host: certificate(tmp_path, 1, host) for host in ("localhost", "127.0.0.1")}
    trusted = tmp_path / "trusted.pem"
    trusted.write_text("".join(each.read_text() for each in certificates.values()))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
    trusting = {"NODE_EXTRA_CA_CERTS": str(trusted)}
    folders = [tmp_path / name for name in ("there", "here", "client")]
    for folder in folders:
        folder.mkdir()
    there, here = (Server(each, workers=1, SSL_CERT_FILE=str(trusted)) for each in folders[:2])
    browser, callback = OpenedBrowser(folders[2]), f"http://127.0.0.1:{free_port()}/oauth/callback"
    with ExitStack() as stack:
        stack.enter_context(over_tls(there, "localhost", certificates["localhost"]))
        new = ("user", "create", "--email", DANA.email, "--name", DANA.name, "--email-verified")
        there.flask(*new, "--password-stdin", stdin=PASSWORD)
        at = f"https://127.0.0.1:{here.port}/api/auth"
        client = there.register("Here", f"{at}/sign-in/callback/work", "--first-party")
        (tmp_path / "secret").write_text(client["client_secret"])
        upstream = tmp_path / "upstream.toml"
        upstream.write_text(
            UPSTREAM.format(
                issuer=there.base_url, client_id=client["client_id"], secret=tmp_path / "secret"
            )
        )
        here.environ["SSO_UPSTREAM_FILE"] = str(upstream)
        stack.enter_context(over_tls(here, "127.0.0.1", certificates["127.0.0.1"], APP))

        # The person links the two accounts, by signing in here through the server there.
        context = chrome.new_context(ignore_https_errors=True)
        page = context.new_page()
        page.goto(f"{here.base_url}/account")
        press(page.get_by_role("button", name="Continue with Work"))
        page.get_by_label("Email").fill(DANA.email)
        page.get_by_label("Password", exact=True).fill(PASSWORD)
        press(page.get_by_role("button", name="Sign in", exact=True))
        assert page.url.startswith(here.base_url), page.url
        context.close()  # servers wait for open connections when they stop

        url = f"http://127.0.0.1:{free_port()}/mcp"
        program = folders[2] / "server.mjs"
        program.write_text(lines(here, url, "typescript-1").replace(f"// {COMMENT}", IN_TYPESCRIPT))
        (folders[2] / "node_modules").symlink_to(node("mcp-typescript-1") / "node_modules")
        stack.enter_context(running([node_program(), program], url, folders[2], trusting))
        takes = ("--assertions", "--first-party", "--id-jag-issuer", there.base_url)
        created = here.flask(
            *("client", "create", "--name", "Inspector", *takes, "--api", f"{url}=read", "--json")
        )
        presenting = json.loads(created)
        listed = f"{here.base_url} {presenting['client_id']} read"
        issues = ("--exchange", "--first-party", "--id-jag-audience", listed)
        scope = ("--scope", "openid offline_access")
        asserting = there.register("Inspector", callback, *issues, *scope)

        own, servers = folders[2] / "client.json", folders[2] / "mcp.json"
        provider = {"issuer": there.base_url, "clientId": asserting["client_id"]}
        provider["clientSecret"] = asserting["client_secret"]
        own.write_text(json.dumps({"enterpriseManagedAuth": {"enabled": True, "idp": provider}}))
        oauth = {"clientId": presenting["client_id"], "clientSecret": presenting["client_secret"]}
        oauth |= {"scopes": "read"}
        notes = {
            "type": "streamable-http",
            "url": url,
            "oauth": {**oauth, "enterpriseManaged": True},
        }
        servers.write_text(json.dumps({"mcpServers": {"notes": notes}}))
        arguments = ["--cli", "--config", str(servers), "--server", "notes", "--format", "json"]
        arguments += ["--method", "tools/call", "--tool-name", "latest"]
        arguments += ["--client-config", str(own), "--callback-url", callback]
        environ = {**trusting, **ALONE, **browser.environ}
        with started(folders[2], INSPECTOR, *arguments, **environ) as process:
            visitor = Browser(there.base_url, callback)
            asked = visitor.open(browser.url())
            asked = visitor.submit(asked, {"email": DANA.email, "password": PASSWORD})
            asked = visitor.submit(asked, {"decision": "allow"})  # it sends prompt=consent
            visitor.session.close()
            assert requests.get(asked.url, timeout=60).ok
            printed, _ = process.communicate(timeout=60)
            assert process.returncode == 0
        issued = events(there, "id_jag_issued")
        taken = events(here, "tokens_issued")
        user = json.loads(here.flask("user", "show", DANA.email, "--json"))
    assert "Buy milk." in printed
    assert {each["fields"]["audience"] for each in issued} == {here.base_url}
    assert {(each["user"], each["fields"]["audience"]) for each in taken} == {(user["id"], url)}


def events(server: Server, name: str) -> list[dict[str, Any]]:
    """The events of this name in the audit trail."""
    listed = server.flask("audit", "list", "--event", name, "--json")
    return list(json.loads(listed))
