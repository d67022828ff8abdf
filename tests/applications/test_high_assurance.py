"""Pushed requests and DPoP by libraries of others: openid-client, requests-oauth2client."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey

from tests.applications.conftest import DANA
from tests.applications.software import node, node_program, python
from tests.clients.test_independent_client import sign_in_and_allow
from tests.clients.test_readme import BLOCKS, block
from tests.support.processes import Server

PROGRAMS = Path(__file__).parent / "programs"
CALLBACK = "http://127.0.0.1:9/callback"
NONCE = "--require-dpop-nonce"


def sign_in_by(
    command: list[str | Path],
    environ: dict[str, str],
    callback: str = CALLBACK,
    cwd: Path | None = None,
    *,
    pushed: bool = True,
) -> dict[str, Any]:
    """Run a program up to the browser, be the person there, and give what it prints in the end."""
    process = subprocess.Popen(
        command, cwd=cwd, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url.startswith("http"), process.communicate(timeout=30)[1]
        assert ("request_uri=urn" in url, "state=" in url) == (pushed, not pushed)
        arrived = sign_in_and_allow(url, callback)
        output, errors = process.communicate(arrived + "\n", timeout=60)
        assert process.returncode == 0, errors
    finally:
        process.kill()
    found: dict[str, Any] = json.loads(output)
    return found


def openid_client(folder: Path) -> list[str | Path]:
    """The program, where it finds its modules."""
    (folder / "node_modules").symlink_to(node("express") / "node_modules")
    program = folder / "program.mjs"
    program.write_text((PROGRAMS / "openid_client.mjs").read_text())
    return [node_program(), program]


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
    environ = environ_of(server, registered)
    found = sign_in_by(openid_client(tmp_path), {"ALG": alg, **environ})
    check(found)
    assert found["asBearer"] == "dpop"


@pytest.mark.parametrize("options", [[], [NONCE]])
def test_requests_oauth2client(server: Server, options: list[str]) -> None:
    scope = ["--scope", "openid profile email offline_access"]
    registered = server.register("Bank", CALLBACK, "--require-dpop", *scope, *options)
    interpreter = python("requests-oauth2client") / "bin/python"
    program = PROGRAMS / "with_requests.py"
    check(sign_in_by([interpreter, program], {"ALG": "ES256", **environ_of(server, registered)}))


def test_openid_client_with_the_profile_fapi2(server: Server, tmp_path: Path) -> None:
    jwk = ECKey.generate_key("P-256").as_dict(private=True)
    public = {name: jwk[name] for name in ("kty", "crv", "x", "y")}
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [{**public, "kid": "k1"}]}))
    options = ["--profile", "fapi2", "--jwks", str(tmp_path / "jwks.json"), NONCE]
    signed = ["--id-token-alg", "PS256", "--response-alg", "PS256"]
    registered = server.register("Bank", CALLBACK, *options, *signed)
    key = json.dumps({**jwk, "kid": "k1"})
    more = {"PRIVATE_JWK": key, "ALG": "ES256", "SIGNED_BY": "PS256"}
    check(sign_in_by(openid_client(tmp_path), {**environ_of(server, registered), **more}))


PAGE = "docs/how-to/high-assurance-clients.md"


@pytest.mark.parametrize("language", ["Python", "JavaScript"])
def test_the_page(server: Server, tmp_path: Path, language: str) -> None:
    """Make a key, register the client, and run the program, as the page has them."""
    make_key = (sys.executable, "-c", block("import json", PAGE))
    subprocess.run(make_key, cwd=tmp_path, check=True, timeout=60)
    page = "\n".join(text for where, text in BLOCKS if where == PAGE)
    (command,) = re.findall(r"^\.venv/bin/flask (client create --name .*)$", page, re.MULTILINE)
    command = command.replace("public.json", str(tmp_path / "public.json"))
    registered = json.loads(server.flask(*shlex.split(command), "--json"))
    environ = {"ISSUER": server.base_url, "CLIENT_ID": registered["client_id"]}
    if language == "Python":
        (tmp_path / "bank.py").write_text(block("import base64", PAGE))
        program: list[str | Path] = [sys.executable, "bank.py"]
    else:
        (tmp_path / "node_modules").symlink_to(node("express") / "node_modules")
        (tmp_path / "bank.mjs").write_text(
            block('import { readFile } from "node:fs/promises";', PAGE)
        )
        program = [node_program(), "bank.mjs"]
    callback = "https://bank.example.com/callback"
    profile = sign_in_by(program, environ, callback, tmp_path)
    assert profile["email"] == DANA.email


def environ_of(server: Server, registered: dict[str, Any]) -> dict[str, str]:
    return {
        "ISSUER": server.base_url,
        "CLIENT_ID": registered["client_id"],
        "CLIENT_SECRET": registered.get("client_secret", ""),
        "REDIRECT_URI": CALLBACK,
    }
