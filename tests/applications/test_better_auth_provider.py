"""Moving from better-auth: a database that it has filled itself, in SQLite and PostgreSQL."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import cbor2
import pytest
from flask import Flask

from tests.applications.software import node, node_program, run
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, claims_of
from tests.support.authenticator import Authenticator
from tests.support.databases import create_database
from tests.support.second_factors import code_of, is_signed_in, sign_in_by_passkey

PROGRAM = Path(__file__).parent / "programs/better_auth_database.mjs"
PASSWORD, SECRET = "correct horse battery", "a secret of better-auth, long enough for it"
WIKI = "https://wiki.example.com/cb"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    """Passkeys need a host with a name."""
    return make_app(SSO_BASE_URL=f"http://localhost:5000{BASE}")


def filled(where: str, key: Authenticator, storage: str, folder: Path) -> dict[str, Any]:
    """Let better-auth fill a database; gives what its people and clients know."""
    point = key.key.public_key().public_numbers()
    cose = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
    settings = {
        "where": where, "secret": SECRET, "person": {"password": PASSWORD}, "uri": WIKI,
        "storeClientSecret": storage,
        "key": {"id": base64.urlsafe_b64encode(key.id).decode().rstrip("="),
                "publicKey": base64.b64encode(cbor2.dumps(cose)).decode()},
    }  # fmt: skip
    (folder / "node_modules").symlink_to(node("better-auth-provider") / "node_modules")
    program = folder / PROGRAM.name
    program.write_text(PROGRAM.read_text())
    filled_by_it: dict[str, Any] = json.loads(run(node_program(), program, json.dumps(settings)))
    return filled_by_it


@pytest.mark.parametrize(("kind", "storage"), [("sqlite", "encrypted"), ("postgresql", "hashed")])
def test_nothing_changes(
    kind: str, storage: str, app: Flask, clock: Clock, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    where = str(tmp_path / "auth.db")
    if kind == "postgresql":
        server = request.getfixturevalue("postgresql_url")
        where = create_database(server, "better_auth", "template0").replace("+psycopg", "")
    key = Authenticator()
    key.create({"user": {"id": base64.urlsafe_b64encode(b"h" * 32).decode()}, "challenge": "x"})
    there = filled(where, key, storage, tmp_path)
    monkeypatch.setenv("BETTER_AUTH_SECRET", SECRET)
    command = ["migrate", "better-auth", where, "--json", "--rp-id", "localhost"]
    command += ["--auth-secret", "env:BETTER_AUTH_SECRET"]
    planned = app.test_cli_runner().invoke(args=[*command, "--plan"])
    done = app.test_cli_runner().invoke(args=command)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert {**json.loads(planned.stdout), "applied": True} == report
    clients = {name: client["id"] for name, client in there["clients"].items()}
    assert report["clients"] == dict.fromkeys(clients.values(), "taken")
    assert report["people"]["factors"] == {
        "authenticator apps": 1, "passkeys and security keys": 1, "recovery codes": 1,
        "consents": 1,
    }  # fmt: skip
    questions = [f["what"] for f in report["findings"] if f["fate"] == "question"]
    assert questions == ["APIs"]

    wiki = RelyingParty(app, clients["wiki"], there["clients"]["wiki"]["secret"], WIKI)
    browser = Browser(app)
    browser.authorize(wiki, scope="openid profile email")
    browser.sign_in(password=PASSWORD)
    [shared] = parse_qs(urlsplit(there["totpURI"]).query)["secret"]
    page = browser.submit(code=code_of(shared))
    claims = claims_of(wiki.exchange(page.code).get_json()["id_token"])
    assert (claims["sub"], claims["name"]) == (there["people"]["dana"], "Dana 李")
    assert (claims["given_name"], claims["email_verified"]) == ("Dana", True)

    browser = Browser(app)
    browser.sign_in(password=PASSWORD)
    browser.submit(code="", recovery_code=there["backupCodes"][0])
    assert is_signed_in(browser)
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    sign_in_by_passkey(browser, key)
    assert is_signed_in(browser)
    browser = Browser(app)
    browser.sign_in(email="fay@example.com", password=PASSWORD)
    assert not is_signed_in(browser)  # banned

    spa = RelyingParty(app, clients["spa"], "", "https://spa.example.com/cb")
    spa_answer = spa.post("/oauth2/token", {"grant_type": "authorization_code", "code": "x",
                                            "client_id": spa.client_id})  # fmt: skip
    assert spa_answer.get_json()["error"] != "invalid_client"
    machine = there["clients"]["machine"]
    tokens = wiki.post("/oauth2/token", {
        "grant_type": "client_credentials", "client_id": machine["id"],
        "client_secret": machine["secret"],
    })  # fmt: skip
    assert tokens.get_json().get("error") != "invalid_client"
    again = json.loads(app.test_cli_runner().invoke(args=command).stdout)
    assert set(again["clients"].values()) == {"same"}
    assert again["people"]["imported"] == 0
