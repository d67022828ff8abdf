"""Public clients in a real browser: back to a program of the device, and scripts that fetch."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import requests
from playwright.sync_api import Page, Playwright, expect

from tests.browser.conftest import EMAIL, PASSWORD, WITHOUT_SCRIPTS, Site, press
from tests.browser.test_journey import fill
from tests.support.actors import pkce
from tests.support.processes import CHROMIUM_ARGUMENTS, chromium, wait_for

SPA = """<!doctype html><title>SPA</title><pre id="result"></pre><script>
const base = "%(base)s", client_id = "%(client_id)s", redirect_uri = location.origin + "/spa";
const text = bytes => btoa(String.fromCharCode(...new Uint8Array(bytes)))
  .replace(/\\+/g, "-").replace(/\\//g, "_").replace(/=+$/, "");
const post = (path, fields) =>
  fetch(base + path, {method: "POST", body: new URLSearchParams({client_id, ...fields})});
const profile = token =>
  fetch(base + "/oauth2/userinfo", {headers: {Authorization: "Bearer " + token}});

async function start() {
  const verifier = text(crypto.getRandomValues(new Uint8Array(32)));
  sessionStorage.verifier = verifier;
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  location = base + "/oauth2/authorize?" + new URLSearchParams({client_id, redirect_uri,
    response_type: "code", scope: "openid profile email", state: "s",
    code_challenge: text(digest), code_challenge_method: "S256"});
}

async function finish(code) {
  const code_verifier = sessionStorage.verifier;
  const fields = {grant_type: "authorization_code", code, code_verifier, redirect_uri};
  const first = await (await post("/oauth2/token", fields)).json();
  const user = await (await profile(first.access_token)).json();
  const next = await (await post("/oauth2/token",
    {grant_type: "refresh_token", refresh_token: first.refresh_token})).json();
  const revoked = (await post("/oauth2/revoke", {token: next.refresh_token})).status;
  const after = await profile(next.access_token);
  return {user, revoked, after: after.status, why: after.headers.get("WWW-Authenticate")};
}

async function foreign() {
  const open = (await fetch(base + "/.well-known/openid-configuration")).status;
  const simple = await post("/oauth2/token", {}).then(() => "read", () => "refused");
  return {open, simple, preflighted: await profile("x").then(() => "read", () => "refused")};
}

const code = new URLSearchParams(location.search).get("code");
const work = location.pathname === "/foreign" ? foreign() : code ? finish(code) : start();
work.then(found => { if (found) document.getElementById("result").textContent =
  JSON.stringify(found); });
</script>"""


DPOP = """<!doctype html><title>SPA</title><pre id="result"></pre><script>
const base = "%(base)s", client_id = "%(client_id)s", redirect_uri = location.origin + "/spa";
const EC = {name: "ECDSA", namedCurve: "P-256"}, utf8 = new TextEncoder();
const text = bytes => btoa(String.fromCharCode(...new Uint8Array(bytes)))
  .replace(/\\+/g, "-").replace(/\\//g, "_").replace(/=+$/, "");
const json = value => text(utf8.encode(JSON.stringify(value)));
const hash = async value => text(await crypto.subtle.digest("SHA-256", utf8.encode(value)));
const nonces = [];

async function proof(htm, path, token) {
  const jwk = JSON.parse(sessionStorage.jwk), {kty, crv, x, y} = jwk;
  const key = await crypto.subtle.importKey("jwk", jwk, EC, false, ["sign"]);
  const header = {typ: "dpop+jwt", alg: "ES256", jwk: {kty, crv, x, y}};
  const claims = {jti: crypto.randomUUID(), htm, htu: base + path,
    iat: Math.floor(Date.now() / 1000), nonce: nonces.at(-1), ath: token && await hash(token)};
  const signed = json(header) + "." + json(claims);
  const signature = await crypto.subtle.sign({...EC, hash: "SHA-256"}, key, utf8.encode(signed));
  return signed + "." + text(signature);
}

async function call(method, path, fields, token) {
  const headers = {DPoP: await proof(method, path, token)};
  if (token) headers.Authorization = "DPoP " + token;
  const body = fields && new URLSearchParams({client_id, ...fields});
  const answer = await fetch(base + path, {method, headers, body});
  const nonce = answer.headers.get("DPoP-Nonce");
  if (nonce) nonces.push(nonce);
  const found = await answer.json();
  return found.error === "use_dpop_nonce" ? call(method, path, fields, token) : found;
}

async function start() {
  const pair = await crypto.subtle.generateKey(EC, true, ["sign"]);
  sessionStorage.jwk = JSON.stringify(await crypto.subtle.exportKey("jwk", pair.privateKey));
  sessionStorage.verifier = text(crypto.getRandomValues(new Uint8Array(32)));
  const {request_uri} = await call("POST", "/oauth2/par", {redirect_uri, response_type: "code",
    scope: "openid email", state: "s", code_challenge: await hash(sessionStorage.verifier),
    code_challenge_method: "S256"});
  location = base + "/oauth2/authorize?" + new URLSearchParams({client_id, request_uri});
}

async function finish(code) {
  const fields = {grant_type: "authorization_code", code, redirect_uri,
    code_verifier: sessionStorage.verifier};
  const first = await call("POST", "/oauth2/token", fields);
  const next = await call("POST", "/oauth2/token",
    {grant_type: "refresh_token", refresh_token: first.refresh_token});
  const user = await call("GET", "/oauth2/userinfo", null, next.access_token);
  const bearer = await fetch(base + "/oauth2/userinfo",
    {headers: {Authorization: "Bearer " + next.access_token}});
  return {user, types: [first.token_type, next.token_type], nonces: nonces.length,
    bearer: bearer.headers.get("WWW-Authenticate")};
}

const code = new URLSearchParams(location.search).get("code");
(code ? finish(code) : start()).catch(String).then(found => { if (found)
  document.getElementById("result").textContent = JSON.stringify(found); });
</script>"""


@contextmanager
def serving(page: Callable[[], str]) -> Iterator[int]:
    """Give the same page at every path of a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page().encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def request_of(site: Site, client_id: str, redirect_uri: str) -> tuple[str, str]:
    """The address of an authorization request, and its verifier."""
    verifier, challenge = pkce()
    values = {
        "response_type": "code", "client_id": client_id, "redirect_uri": redirect_uri,
        "scope": "openid email", "state": "s t", "code_challenge": challenge,
        "code_challenge_method": "S256",
    }  # fmt: skip
    return f"{site.server.base_url}/oauth2/authorize?{urlencode(values)}", verifier


def exchanged(
    site: Site, client_id: str, redirect_uri: str, arrived: str, verifier: str
) -> dict[str, Any]:
    answer = dict(parse_qsl(urlsplit(arrived).query))
    assert (answer["state"], answer["iss"]) == ("s t", site.server.base_url)
    form = {
        "grant_type": "authorization_code", "code": answer["code"], "client_id": client_id,
        "redirect_uri": redirect_uri, "code_verifier": verifier,
    }  # fmt: skip
    tokens: dict[str, Any] = requests.post(
        f"{site.server.base_url}/oauth2/token", data=form, timeout=60
    ).json()
    assert tokens["token_type"] == "Bearer"
    return tokens


@WITHOUT_SCRIPTS
def test_back_to_a_program_by_its_own_scheme(
    site: Site, playwright: Playwright, scripts: bool, tmp_path: Path
) -> None:
    """The browser really starts what the system has for the scheme: here a script of the test."""
    opener, opened = tmp_path / "bin" / "xdg-open", tmp_path / "opened"
    opener.parent.mkdir()
    opener.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    opener.chmod(0o755)
    # As if the person had ticked "Always allow": nobody is there to be asked.
    known = {site.server.origin: {"com.example.app": True}}
    preferences = tmp_path / "profile" / "Default" / "Preferences"
    preferences.parent.mkdir(parents=True)
    preferences.write_text(
        json.dumps({"protocol_handler": {"allowed_origin_protocol_pairs": known}})
    )
    context = playwright.chromium.launch_persistent_context(
        tmp_path / "profile",
        executable_path=chromium(whole=True),
        args=CHROMIUM_ARGUMENTS,
        java_script_enabled=scripts,
        env={**os.environ, "PATH": f"{opener.parent}:{os.environ['PATH']}"},
    )
    uri = "com.example.app:/callback"
    client_id = site.server.register("App", uri, "--public")["client_id"]
    url, verifier = request_of(site, client_id, uri)
    try:
        page = context.new_page()
        page.goto(url)
        fill(page, PASSWORD)
        expect(page.get_by_role("main")).to_contain_text("on this device (com.example.app)")
        page.click("button[value=allow]")
        wait_for(lambda: opened.exists() and opened.read_text().endswith("\n"), "the program")
    finally:
        context.close()
    (arrived,) = opened.read_text().splitlines()
    assert arrived.startswith(f"{uri}?code=")
    assert exchanged(site, client_id, uri, arrived, verifier)["refresh_token"]


@WITHOUT_SCRIPTS
def test_back_to_a_program_at_another_port(site: Site, page: Page) -> None:
    registered = site.server.register("CLI", "http://127.0.0.1/callback", "--public")
    with serving(lambda: "<p>You may close this tab.</p>") as port:
        uri = f"http://127.0.0.1:{port}/callback"
        url, verifier = request_of(site, registered["client_id"], uri)
        page.goto(url)
        fill(page, PASSWORD)
        expect(
            page.get_by_text(f"an application on this device (127.0.0.1:{port})")
        ).to_be_visible()
        press(page.locator("button[value=allow]"))
        expect(page.get_by_text("You may close this tab.")).to_be_visible()
        assert page.url.startswith(f"{uri}?code=")
        assert exchanged(site, registered["client_id"], uri, page.url, verifier)["id_token"]


@pytest.mark.parametrize("scripts", [True], indirect=True, ids=["with scripts"])
def test_a_single_page_application(site: Site, page: Page) -> None:
    values = {"base": site.server.base_url}
    with serving(lambda: SPA % values) as port:
        uri = f"http://127.0.0.1:{port}/spa"
        values["client_id"] = site.server.register("SPA", uri, "--public")["client_id"]
        page.goto(uri)
        page.wait_for_url(f"{site.server.base_url}/sign-in**")
        fill(page, PASSWORD)
        press(page.locator("button[value=allow]"))
        page.wait_for_url(f"{uri}?code=**")
        result = page.locator("#result")
        expect(result).not_to_be_empty()
        found = json.loads(result.inner_text())
        assert found["user"]["email"] == EMAIL
        assert (found["revoked"], found["after"]) == (200, 401)
        assert 'error="invalid_token"' in found["why"]

        page.goto(f"http://localhost:{port}/foreign")
        expect(result).not_to_be_empty()
        assert json.loads(result.inner_text()) == {
            "open": 200, "simple": "refused", "preflighted": "refused"
        }  # fmt: skip


@pytest.mark.parametrize("scripts", [True], indirect=True, ids=["with scripts"])
def test_a_single_page_application_with_a_key(site: Site, page: Page) -> None:
    """Pushed requests and DPoP with nonces, by nothing but what browsers have."""
    values = {"base": site.server.base_url}
    with serving(lambda: DPOP % values) as port:
        uri = f"http://127.0.0.1:{port}/spa"
        options = ("--public", "--require-par", "--require-dpop", "--require-dpop-nonce")
        values["client_id"] = site.server.register("Keyed", uri, *options)["client_id"]
        page.goto(uri)
        page.wait_for_url(f"{site.server.base_url}/sign-in**")
        fill(page, PASSWORD)
        press(page.locator("button[value=allow]"))
        page.wait_for_url(f"{uri}?code=**")
        result = page.locator("#result")
        expect(result).not_to_be_empty()
        found = json.loads(result.inner_text())
        assert not isinstance(found, str), found
        assert found["user"]["email"] == EMAIL
        assert found["types"] == ["DPoP", "DPoP"]
        assert found["nonces"] >= 1
        assert found["bearer"].startswith("DPoP ")
