"""`flask mcp`: MCP servers are protected by command, and domains of agents are decided about."""

import json
from typing import Any

import pytest
from flask import Flask

from sso.mcp.configurations import CONFIGURATIONS
from tests.support.events import events
from tests.support.factories import make_api

URL = "https://mcp.example.com/mcp"


def run(app: Flask, *arguments: str) -> Any:
    return app.test_cli_runner().invoke(args=["mcp", *arguments])


def answer(app: Flask, *arguments: str) -> Any:
    result = run(app, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_server_is_added_with_scopes_and_groups(app: Flask) -> None:
    api = answer(app, "add", URL, "--scope", "read=Read your notes", "--group", "engineers")
    assert (api["identifier"], api["name"], api["agents"]) == (URL, "mcp.example.com", True)
    assert (api["scopes"], api["groups"]) == ({"read": "Read your notes"}, ["engineers"])
    metadata = api["metadata"]
    assert metadata["url"] == "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
    assert metadata["document"]["resource"] == URL
    assert metadata["document"]["scopes_supported"] == ["read"]
    assert api["configurations"].keys() == {each.name for each in CONFIGURATIONS}
    for text in api["configurations"].values():
        assert "@" not in text.replace("@modelcontextprotocol", "").replace("@unauthorized", "")
    assert [event["api"] for event in events(app, "api_created")] == [URL]


def test_an_api_that_exists_is_opened_for_agents(app: Flask) -> None:
    make_api(app, URL, scopes={"read": "Read"}, groups=["staff"])
    api = answer(app, "add", URL, "--scope", "write=Write", "--group", "engineers")
    assert api["agents"] is True
    assert api["scopes"] == {"read": "Read", "write": "Write"}
    assert api["groups"] == ["staff", "engineers"]
    assert [each["identifier"] for each in answer(app, "list")["servers"]] == [URL]
    api = answer(app, "add", URL, "--scope", "read=Read all")
    assert api["scopes"] == {"read": "Read all", "write": "Write"}
    same = answer(app, "add", URL.replace("https://mcp", "HTTPS://MCP"), "--name", "Notes")
    assert (same["identifier"], same["name"]) == (URL, "Notes")


@pytest.mark.parametrize(
    "url", ["mcp.example.com", "http://mcp.example.com/mcp", "urn:x:y", "https://x/#a", "https://u@x/"]
)  # fmt: skip
def test_what_is_no_url_of_a_server(app: Flask, url: str) -> None:
    result = run(app, "add", url)
    assert result.exit_code == 1
    assert "is not the URL of an MCP server" in result.stderr


def test_lines_are_printed_for_one_software(app: Flask) -> None:
    assert run(app, "add", URL).exit_code == 0
    printed = run(app, "show", URL, "--for", "fastmcp").stdout
    assert printed.startswith("from fastmcp import FastMCP\n")
    compile(printed, "server.py", "exec")
    everything = run(app, "show", URL).stdout
    for each in CONFIGURATIONS:
        assert f"== {each.label}\n" in everything
    assert f"doctor --mcp {URL}" in everything


def test_a_name_cannot_write_code(app: Flask) -> None:
    name = 'a"); import os #\\'
    printed = run(app, "add", URL, "--name", name, "--for", "fastmcp").stdout
    assert f"mcp = FastMCP({json.dumps(name)}, auth=auth)" in printed


def test_proxies_get_no_lines_for_strange_identifiers(app: Flask) -> None:
    api = answer(app, "add", "https://mcp.example.com/a;b$c(d)")
    assert "fastmcp" in api["configurations"]
    assert "nginx" not in api["configurations"]


def test_domains_are_allowed_blocked_and_forgotten(app: Flask) -> None:
    assert answer(app, "allow", "Example.COM")["domain"] == "example.com"
    assert answer(app, "block", "evil.example") == {
        "domain": "evil.example", "status": "blocked", "disabled": [],
    }  # fmt: skip
    listed = answer(app, "list")["domains"]
    assert {each["domain"]: each["status"] for each in listed} == {
        "evil.example": "blocked", "example.com": "allowed",
    }  # fmt: skip
    assert answer(app, "remove", "example.com", "--yes")["deleted"] is True
    assert len(answer(app, "list")["domains"]) == 1
    result = run(app, "remove", "example.com", "--yes")
    assert result.exit_code == 1
    assert "nothing was decided" in result.stderr
    assert "SSO_CLIENT_DOCUMENTS is off" in run(app, "list").stdout


def test_a_well_known_agent_is_allowed_by_name(app: Flask) -> None:
    listed = answer(app, "list")
    assert listed["domains"] == []  # nothing is allowed by itself
    assert {each["name"]: each["domain"] for each in listed["well_known"]}["codex"] == "chatgpt.com"
    printed = run(app, "allow", "Claude").stdout
    assert "document at claude.ai may" in printed
    assert "Among them: Claude, Claude Code.\n" in printed
    assert answer(app, "block", "codex")["domain"] == "chatgpt.com"
    rows = [line.split() for line in run(app, "list").stdout.splitlines() if "https://" in line]
    decided = {row[0]: row[-1] for row in rows}
    assert decided["claude-code"] == "allowed"
    assert (decided["chatgpt"], decided["zed"]) == ("blocked", "decided")  # not decided
    assert answer(app, "remove", "claude-code", "--yes") == {"domain": "claude.ai", "deleted": True}
    assert "claude-code" in run(app, "allow", "--help").stdout
    assert run(app, "allow", "nobody").exit_code == 1


def test_a_server_is_removed_with_its_whole_url(app: Flask) -> None:
    assert run(app, "add", URL).exit_code == 0
    assert run(app, "remove", "https://mcp.example.com", "--yes").exit_code == 1
    assert run(app, "remove", URL).exit_code == 1  # it asks, and nobody answers
    assert answer(app, "remove", URL, "--yes") == {"identifier": URL, "deleted": True}
    assert answer(app, "list")["servers"] == []
