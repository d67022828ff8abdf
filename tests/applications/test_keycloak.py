"""The evening of a move: a real Keycloak's realm, exported, taken over, and used by an application
that does not change but for its issuer.

The same people sign in with the same passwords, codes and passkeys, and keep their subjects.
"""

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pyotp
import pytest
import requests
from joserfc import jws
from playwright.sync_api import Browser, Page

from tests.applications.keycloak import Keycloak
from tests.support.keycloak import mapper
from tests.support.processes import Server, free_port

pytestmark = pytest.mark.skipif("APPLICATIONS_LARGE" not in os.environ, reason="takes minutes")
SECRET = "v6mUu3Dq0vXn9hQ7rT2yW8zB4cE1fG5k"
PORT = free_port()
CALLBACK = f"http://127.0.0.1:{PORT}/callback"
PEOPLE = 1000
AUTHENTICATOR = {
    "protocol": "ctap2", "transport": "internal", "hasResidentKey": True,
    "hasUserVerification": True, "isUserVerified": True, "automaticPresenceSimulation": True,
}  # fmt: skip


def password(name: str) -> str:
    return f"Passw0rd-of-{name}"


def person(name: str, **more: Any) -> dict[str, Any]:
    return {
        "username": name, "email": f"{name}@example.com", "emailVerified": True, "enabled": True,
        "firstName": name.capitalize(), "lastName": "Doe",
        "credentials": [{"type": "password", "value": password(name)}],
    } | more  # fmt: skip


def hashless(number: int) -> dict[str, Any]:
    """One of many, without a password, which would take Keycloak long to hash."""
    return person(f"person{number}", credentials=[], groups=["/営業"])


REALM = {
    "realm": "acme", "enabled": True, "sslRequired": "none",
    "roles": {
        "realm": [{"name": "staff"},
                  {"name": "auditor", "composite": True,
                   "composites": {"realm": ["staff"], "client": {"web": ["viewer"]}}}],
        "client": {"web": [{"name": "viewer"}, {"name": "editor"}]},
    },
    "groups": [
        {"name": "teams", "subGroups": [{"name": "red", "clientRoles": {"web": ["editor"]}}]},
        {"name": "営業"},
    ],
    "clients": [
        {"clientId": "web", "name": "Web", "secret": SECRET,
         "redirectUris": [CALLBACK, "https://web.example.com/*"],
         "attributes": {"post.logout.redirect.uris": "+##https://web.example.com/bye",
                        "backchannel.logout.url": "https://web.example.com/logout"},
         "protocolMappers": [
             mapper("oidc-usermodel-attribute-mapper", "department", user__attribute="department",
                    claim__name="department", jsonType__label="String"),
             mapper("oidc-usermodel-client-role-mapper", "roles", claim__name="roles",
                    multivalued="true", usermodel__clientRoleMapping__clientId="web"),
         ]},
        {"clientId": "spa", "publicClient": True, "redirectUris": ["https://spa.example.com/cb"],
         "attributes": {"pkce.code.challenge.method": "S256"}},
        {"clientId": "robot", "serviceAccountsEnabled": True, "standardFlowEnabled": False,
         "secret": SECRET[::-1]},
        {"clientId": "api", "bearerOnly": True},
        {"clientId": "https://saml.example.com/metadata", "protocol": "saml",
         "redirectUris": ["https://saml.example.com/acs"],
         "attributes": {"saml.client.signature": "false", "saml_name_id_format": "email"}},
        *({"clientId": f"app{number}", "secret": SECRET,
           "redirectUris": [f"https://app{number}.example.com/cb"]} for number in range(25)),
    ],
    "users": [
        person("dana", groups=["/teams/red"], attributes={"department": ["R&D"]}),
        person("otto"), person("paula"), person("rita", realmRoles=["auditor"]),
        person("erin", enabled=False),
        *map(hashless, range(PEOPLE - 5)),
    ],
}  # fmt: skip


class Application:
    """The web application: it knows its client ID, its secret and an issuer."""

    def __init__(self, issuer: str) -> None:
        url = f"{issuer}/.well-known/openid-configuration"
        self.metadata: dict[str, str] = requests.get(url, timeout=60).json()

    def url(self, **more: str) -> str:
        request = {"client_id": "web", "redirect_uri": CALLBACK, "response_type": "code",
                   "scope": "openid profile email", "state": "x", **more}  # fmt: skip
        return f"{self.metadata['authorization_endpoint']}?{urlencode(request)}"

    def claims(self, code: str) -> dict[str, Any]:
        """Exchange a code; the claims of the ID token and of userinfo, verified by the key set."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
        answer = requests.post(self.metadata["token_endpoint"], data=form, auth=("web", SECRET),
                               timeout=60)  # fmt: skip
        assert answer.ok, answer.text
        kid = jws.extract_compact(answer.json()["id_token"].encode()).headers()["kid"]
        keys = requests.get(self.metadata["jwks_uri"], timeout=60).json()["keys"]
        assert kid in {key["kid"] for key in keys}
        token = {"Authorization": f"Bearer {answer.json()['access_token']}"}
        profile = requests.get(self.metadata["userinfo_endpoint"], headers=token, timeout=60)
        body = answer.json()["id_token"].split(".")[1]
        id_token = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        assert id_token["sub"] == profile.json()["sub"]
        return {**id_token, **profile.json()}


class Callback(BaseHTTPRequestHandler):
    """The application's page that gets the code."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"Signed in")

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@pytest.fixture(autouse=True)
def callback() -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Callback)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield
    server.shutdown()
    server.server_close()
    thread.join(10)


class Visit:
    """A browser on its way to the application."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def code(self) -> str:
        self.page.wait_for_url(f"{CALLBACK}?**")
        [code] = parse_qs(urlsplit(self.page.url).query)["code"]
        return code


@pytest.fixture
def visit(chrome: Browser) -> Iterator[Visit]:
    context = chrome.new_context()
    context.set_default_timeout(60_000)
    yield Visit(context.new_page())
    context.close()


@pytest.fixture
def device(chrome: Browser) -> Iterator[Visit]:
    """A browser with an authenticator, which signs in by itself where a page offers it."""
    context = chrome.new_context()
    context.set_default_timeout(60_000)
    visit = Visit(context.new_page())
    session = context.new_cdp_session(visit.page)
    session.send("WebAuthn.enable")
    session.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    visit.page.on("dialog", lambda dialog: dialog.accept("My key"))
    yield visit
    context.close()


def sign_in_there(visit: Visit, url: str, name: str) -> None:
    visit.page.context.clear_cookies()
    visit.page.goto(url)
    visit.page.fill("#username", name)
    visit.page.fill("#password", password(name))
    visit.page.click("#kc-login")


def sign_in_here(visit: Visit, url: str, name: str) -> None:
    visit.page.context.clear_cookies()
    visit.page.goto(url)
    visit.page.get_by_label("Email").fill(f"{name}@example.com")
    visit.page.get_by_label("Password", exact=True).fill(password(name))
    visit.page.get_by_role("button", name="Sign in", exact=True).click()


def enrol_there(application: Application, visit: Visit, device: Visit) -> str:
    """Set up an app for otto and a passkey for paula; the secret of the app."""
    sign_in_there(visit, application.url(kc_action="CONFIGURE_TOTP"), "otto")
    visit.page.click("#mode-manual")
    secret = visit.page.inner_text("#kc-totp-secret-key").replace(" ", "")
    visit.page.fill("#totp", pyotp.TOTP(secret).now())
    visit.page.fill("#userLabel", "Phone")
    visit.page.click("#saveTOTPBtn")
    visit.code()
    sign_in_there(device, application.url(kc_action="webauthn-register-passwordless"), "paula")
    device.page.click("#registerWebAuthn")
    device.code()
    return secret


def test_nobody_notices_the_move(
    tmp_path: Path, visit: Visit, device: Visit, record_property: Callable[[str, object], None]
) -> None:
    keycloak, file = Keycloak(tmp_path), tmp_path / "realm.json"
    with keycloak.running():
        keycloak.create(REALM)
        application = Application(keycloak.issuer("acme"))
        secret = enrol_there(application, visit, device)
        sign_in_there(visit, application.url(), "dana")
        before = application.claims(visit.code())
        sign_in_there(visit, application.url(), "rita")
        rita_before = application.claims(visit.code())
    keycloak.export("acme", file)

    server = Server(tmp_path, workers=1)
    server.environ["SSO_BASE_URL"] = f"http://localhost:{server.port}/api/auth"
    server.migrate()
    options = ("--rp-id", "localhost", "--redirect-uri", "web=https://web.example.com/callback")
    command = ("migrate", "keycloak", str(file), *options, "--json")
    planned = json.loads(server.flask(*command, "--plan"))
    start = time.monotonic()
    report = json.loads(server.flask(*command))
    took = time.monotonic() - start
    again = json.loads(server.flask(*command))
    assert report == {**planned, "applied": True}
    assert report["people"]["imported"] == PEOPLE
    assert report["people"]["factors"] == {
        "authenticator apps": 1, "passkeys and security keys": 1
    }  # fmt: skip
    fates = list(report["clients"].values())
    assert (fates.count("taken"), report["clients"]["api"]) == (29, "not_taken")
    assert again["people"]["imported"] == 0
    assert again["people"]["updates"] == {}
    assert not {"taken", "changed"} & {*again["clients"].values()}
    record_property("seconds", round(took, 1))

    with server.serving():
        issuer = server.environ["SSO_BASE_URL"]
        moved = Application(issuer)
        sign_in_here(visit, moved.url(), "dana")
        after = moved.claims(visit.code())
        same = ("sub", "name", "email", "email_verified", "preferred_username", "given_name",
                "family_name", "department", "roles")  # fmt: skip
        assert {name: after[name] for name in same} == {name: before[name] for name in same}
        sign_in_here(visit, moved.url(), "rita")
        rita = moved.claims(visit.code())
        assert (rita["sub"], rita["roles"]) == (rita_before["sub"], rita_before["roles"])
        sign_in_here(visit, moved.url(), "otto")
        visit.page.get_by_label("Code", exact=False).first.fill(pyotp.TOTP(secret).now())
        visit.page.get_by_role("button", name="Continue").first.click()
        assert moved.claims(visit.code())["preferred_username"] == "otto"
        device.page.context.clear_cookies()
        device.page.goto(moved.url())
        assert moved.claims(device.code())["preferred_username"] == "paula"
        sign_in_here(visit, moved.url(), "erin")
        visit.page.get_by_role("alert").wait_for()
        robot = requests.post(
            moved.metadata["token_endpoint"], data={"grant_type": "client_credentials"},
            auth=("robot", SECRET[::-1]), timeout=60,
        )  # fmt: skip
        assert "access_token" in robot.json() or robot.json()["error"] == "invalid_target"
