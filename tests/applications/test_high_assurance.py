"""Pushed requests and DPoP by libraries of others: openid-client, requests-oauth2client."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.applications.conftest import DANA
from tests.applications.software import node, node_program, python
from tests.clients.test_independent_client import sign_in_and_allow
from tests.support.processes import Server

PROGRAMS = Path(__file__).parent / "programs"
CALLBACK = "http://127.0.0.1:9/callback"
NONCE = "--require-dpop-nonce"


def sign_in_by(command: list[str | Path], **environ: str) -> dict[str, Any]:
    """Run a program up to the browser, be the person there, and give what it prints in the end."""
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url.startswith("http"), process.communicate(timeout=30)[1]
        assert "request_uri=urn" in url
        assert "state=" not in url
        arrived = sign_in_and_allow(url, CALLBACK)
        output, errors = process.communicate(arrived + "\n", timeout=60)
        assert process.returncode == 0, errors
    finally:
        process.kill()
    found: dict[str, Any] = json.loads(output)
    return found


def check(found: dict[str, Any]) -> None:
    assert [one.lower() for one in found["types"]] == ["dpop", "dpop"]
    assert found["profile"]["email"] == DANA.email
    assert found["described"]["active"]
    assert found["described"]["cnf"]["jkt"]


@pytest.mark.parametrize(
    ("alg", "options"), [("ES256", []), ("PS256", [NONCE]), ("Ed25519", [NONCE])]
)
def test_openid_client(server: Server, tmp_path: Path, alg: str, options: list[str]) -> None:
    registered = server.register("Bank", CALLBACK, "--require-par", "--require-dpop", *options)
    (tmp_path / "node_modules").symlink_to(node("express") / "node_modules")
    program = tmp_path / "program.mjs"
    program.write_text((PROGRAMS / "openid_client.mjs").read_text())
    found = sign_in_by([node_program(), program], ALG=alg, **environ_of(server, registered))
    check(found)
    assert found["asBearer"] == "dpop"


@pytest.mark.parametrize("options", [[], [NONCE]])
def test_requests_oauth2client(server: Server, options: list[str]) -> None:
    scope = ["--scope", "openid profile email offline_access"]
    registered = server.register("Bank", CALLBACK, "--require-dpop", *scope, *options)
    interpreter = python("requests-oauth2client") / "bin/python"
    program = PROGRAMS / "with_requests.py"
    check(sign_in_by([interpreter, program], ALG="ES256", **environ_of(server, registered)))


def environ_of(server: Server, registered: dict[str, Any]) -> dict[str, str]:
    return {
        "ISSUER": server.base_url,
        "CLIENT_ID": registered["client_id"],
        "CLIENT_SECRET": registered["client_secret"],
        "REDIRECT_URI": CALLBACK,
    }
