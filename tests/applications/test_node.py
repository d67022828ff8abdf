"""Applications in Node.js: openid-client, Passport, Auth.js and Better Auth."""

import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.applications.conftest import (
    ADMINS,
    DANA,
    Connect,
    check_example,
    press,
    shown,
    sign_in,
    sign_out,
)
from tests.applications.software import Application, node, node_program, run
from tests.support.processes import Server

# Better Auth's preset leaves the server and its pages to the application.
SERVER = """
import { createServer } from "node:http";
import { toNodeHandler } from "better-auth/node";
import { auth } from "./auth.js";

const handler = toNodeHandler(auth);
createServer((request, response) =>
  request.url.startsWith("/api/auth/") ? handler(request, response) : response.end("home"),
).listen(process.env.PORT, "127.0.0.1");
"""
# What auth-client.js does in a browser, without the bundle that it belongs to.
POST = """([path, body]) => fetch("/api/auth" + path, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
}).then((answer) => answer.json())"""


def install(app: Application, packages: Path, secret: str) -> None:
    """Do what every one of these presets says first."""
    app.uses(packages)
    app.shell(app.printed("Packages").replace("npm install", "npm ls"))
    app.write(".env")
    app.run(secret)
    app.environ["PORT"] = str(app.port)


@pytest.mark.parametrize(
    "preset", ["openid-client", pytest.param("passport", marks=pytest.mark.exhaustive)]
)
def test_express(connect: Connect, page: Page, preset: str) -> None:
    app = connect(preset)
    install(app, node("express"), "Session secret")
    app.write("app.mjs")
    with app.running("node", "--env-file=.env", "app.mjs"):
        check_example(app, page)


def test_express_with_a_key(server: Server, page: Page, tmp_path: Path) -> None:
    """As `client presets` says: make the keys, register the public one, start the program."""
    preset = "openid-client-fapi2"
    prepare = json.loads(server.flask("client", "presets", preset, "--json"))["preparation"]
    path = f"{node_program().parent}:{os.environ['PATH']}"
    run("bash", "-euo", "pipefail", "-c", prepare, cwd=tmp_path, PATH=path)
    assert (tmp_path / "private.json").stat().st_mode & 0o077 == 0
    options = ("--jwks", str(tmp_path / "public.json"), "--require-dpop-nonce")
    app = Application(tmp_path, server, preset, *options)
    assert app.registered["profile"] == "fapi2"
    assert "client_secret" not in json.dumps(app.registered)
    install(app, node("express"), "Session secret")
    app.write("app.mjs")
    with app.running("node", "--env-file=.env", "app.mjs"):
        check_example(app, page)


def test_authjs(connect: Connect, page: Page) -> None:
    app = connect("authjs", "--alternative", "Express")
    install(app, node("authjs"), "Secret for Auth.js's cookies")
    app.write("app.mjs")
    with app.running("node", "--env-file=.env", "app.mjs"):
        page.goto(f"{app.url}/auth/signin?callbackUrl=/")
        expect(page.locator("img")).to_have_count(0)  # it would come from another host
        press(page.get_by_role("button", name="Sign in with"))
        sign_in(page, DANA)
        expect(page).to_have_url(f"{app.url}/")
        user = shown(page)
        assert user.pop("id")
        assert user == {"name": DANA.name, "email": DANA.email, "groups": [ADMINS, "staff"]}
        page.goto(f"{app.url}/sign-out")
        press(page.get_by_role("button", name="Sign out"))
        sign_out(page)
        expect(page).to_have_url(f"{app.url}/")
        assert shown(page) is None
        page.goto(f"{app.url}/auth/signin")
        press(page.get_by_role("button", name="Sign in with"))
        expect(page.get_by_label("Password", exact=True)).to_be_visible()


@pytest.mark.exhaustive
def test_better_auth(connect: Connect, page: Page) -> None:
    app = connect("better-auth")
    install(app, node("better-auth"), "Better Auth's own secret")
    app.write("auth.js")
    (app.folder / "package.json").write_text('{"type": "module"}')
    (app.folder / "server.js").write_text(SERVER)
    with app.running("node", "--env-file=.env", "server.js"):
        page.goto(app.url)
        enter = {"provider": "sso", "callbackURL": "/"}
        page.goto(page.evaluate(POST, ["/sign-in/social", enter])["url"])
        sign_in(page, DANA)
        expect(page).to_have_url(f"{app.url}/")
        page.goto(f"{app.url}/api/auth/get-session")
        user = shown(page)["user"]
        assert (user["name"], user["email"], user["emailVerified"]) == (DANA.name, DANA.email, True)
        page.goto(app.url)
        page.goto(page.evaluate(POST, ["/sign-out", {}])["url"])
        expect(page).to_have_url(f"{app.url}/")
        page.goto(f"{app.url}/api/auth/get-session")
        assert shown(page) is None
        page.goto(app.url)
        page.goto(page.evaluate(POST, ["/sign-in/social", enter])["url"])
        expect(page.get_by_label("Password", exact=True)).to_be_visible()
