"""The evening of a move: a real Keycloak's realm, exported, taken over, and used by applications
that go on running with the configuration that they have.

The same people sign in with the same passwords, codes and passkeys, and keep their subjects. How
long each step takes is printed; `-rP` shows it.
"""

# ruff: noqa: T201 (the timetable, and the plan)

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyotp
import pytest
import requests
from flask import Flask
from playwright.sync_api import Browser, Page, TimeoutError
from sqlalchemy import update

from sso.crypto import foreign_hashes
from sso.extensions import db
from sso.mfa import totp
from sso.models import User
from tests.applications import software
from tests.applications.keycloak import Keycloak
from tests.applications.keycloak_acme import CLIENTS, PEOPLE, SECRET, password, realm
from tests.support.factories import make_attribute, make_user, register_client
from tests.support.processes import Server, free_port, wait_for

pytestmark = pytest.mark.skipif("APPLICATIONS_LARGE" not in os.environ, reason="takes minutes")
PROGRAM = Path(__file__).parent / "programs/signed_in_web.py"
AUTHENTICATOR = {
    "protocol": "ctap2", "transport": "internal", "hasResidentKey": True,
    "hasUserVerification": True, "isUserVerified": True, "automaticPresenceSimulation": True,
}  # fmt: skip
SAME = ("sub", "name", "email", "email_verified", "preferred_username", "given_name", "family_name",
        "department", "roles")  # fmt: skip


class Timetable:
    """How long each step of the evening takes, in seconds."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.steps[name] = round(time.monotonic() - start, 1)
        print(f"{self.steps[name]:7.1f} s  {name}", flush=True)

    def __str__(self) -> str:
        steps = {**self.steps, "in all": round(sum(self.steps.values()), 1)}
        return "\n".join(f"{seconds:7.1f} s  {name}" for name, seconds in steps.items())


class Application:
    """A program with a configuration file, which runs before, during and after the move."""

    def __init__(self, folder: Path, client_id: str, scope: str, secret: str | None = None) -> None:
        self.client_id, self.port = client_id, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._file = folder / f"{client_id}.json"
        self._configuration = {"client_id": client_id, "client_secret": secret, "scope": scope}

    @contextmanager
    def running(self, issuer: str) -> Iterator["Application"]:
        self._file.write_text(json.dumps({**self._configuration, "issuer": issuer}))
        with self._file.with_suffix(".log").open("wb") as log:
            process = software.start(sys.executable, PROGRAM, self._file, self.port, output=log)

        def is_ready() -> bool:
            assert process.poll() is None, self.log
            try:
                return requests.get(self.url, timeout=60).ok
            except requests.ConnectionError:
                return False

        try:
            wait_for(is_ready, self.client_id, 60)
            yield self
        finally:
            software.stop(process)

    @property
    def log(self) -> str:
        return self._file.with_suffix(".log").read_text()[-4000:]

    def get(self, path: str) -> dict[str, Any]:
        answer = requests.get(f"{self.url}/{path}", timeout=60)
        assert answer.ok, self.log
        answered: dict[str, Any] = answer.json()
        return answered


class Visit:
    """A browser on its way to applications."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def go(self, application: Application, **more: str) -> None:
        """Go to an application's sign-in as somebody who was nowhere before."""
        self.page.context.clear_cookies()
        self.page.goto(f"{application.url}/sign-in?{urlencode(more)}")

    def result(self, application: Application) -> dict[str, Any]:
        """Return what the application shows of the person who has signed in."""
        try:
            self.page.wait_for_url(f"{application.url}/callback?**")
        except TimeoutError as error:
            error.add_note(f"{self.page.url}\n{self.page.locator('body').inner_text()}")
            raise
        text = self.page.locator("body").inner_text()
        assert text.startswith("{"), application.log
        shown: dict[str, Any] = json.loads(text)
        return shown

    def sign_in_there(self, application: Application, name: str, **more: str) -> None:
        self.go(application, **more)
        self.page.fill("#username", name)
        self.page.fill("#password", password(name))
        self.page.click("#kc-login")

    def sign_in_here(self, application: Application, name: str) -> None:
        self.go(application)
        self.page.get_by_label("Email").fill(f"{name}@example.com")
        self.page.get_by_label("Password", exact=True).fill(password(name))
        self.page.get_by_role("button", name="Sign in", exact=True).click()


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


def enrol_there(application: Application, visit: Visit, device: Visit) -> str:
    """Set up an app for otto and a passkey for paula; the secret of the app."""
    visit.sign_in_there(application, "otto", kc_action="CONFIGURE_TOTP")
    visit.page.click("#mode-manual")
    secret = visit.page.inner_text("#kc-totp-secret-key").replace(" ", "")
    visit.page.fill("#totp", pyotp.TOTP(secret).now())
    visit.page.fill("#userLabel", "Phone")
    visit.page.click("#saveTOTPBtn")
    visit.result(application)
    device.sign_in_there(application, "paula", kc_action="webauthn-register-passwordless")
    device.page.wait_for_url("**/required-action?**")  # and its scripts
    device.page.click("#registerWebAuthn")
    device.result(application)
    return secret


class Evening:
    """Two applications that run all the time, and the servers before and after the move."""

    def __init__(self, folder: Path) -> None:
        self.times = Timetable()
        self.keycloak, self.export = Keycloak(folder), folder / "realm.json"
        self.issuer = self.keycloak.issuer("acme")
        self.web = Application(folder, "web", "openid profile email", SECRET)
        self.mobile = Application(folder, "mobile", "openid profile email offline_access")
        self.server = Server(folder, workers=1)
        base_url = f"http://localhost:{self.server.port}/api/auth"
        aliases = f"{self.issuer}=keycloak"
        self.server.environ |= {"SSO_BASE_URL": base_url, "SSO_ISSUER_ALIASES": aliases}
        self.options = ("--rp-id", "localhost", "--issuer", self.issuer,
                        "--redirect-uri", "web=https://web.example.com/callback")  # fmt: skip
        self.totp = ""
        self.before: dict[str, dict[str, Any]] = {}

    def live_there(self, visit: Visit, device: Visit) -> None:
        """Sign people in at Keycloak, so that applications have their tokens."""
        self.totp = enrol_there(self.web, visit, device)
        for application, name in ((self.web, "dana"), (self.web, "rita"), (self.mobile, "person7")):
            visit.sign_in_there(application, name)
            self.before[name] = visit.result(application)
            assert "error" not in application.get(f"refresh/{name}")

    def migrate(self) -> None:
        """Plan, rehearse, migrate, and migrate again."""
        command = ("migrate", "keycloak", str(self.export), *self.options)
        times, flask = self.times, self.server.flask
        self.server.migrate()
        with times.step("plan"):
            planned = json.loads(flask(*command, "--json", "--plan"))
        print(flask(*command, "--plan"))
        with times.step("migrate"):
            report = json.loads(flask(*command, "--json"))
        with times.step("rehearse with Keycloak's access log"):
            rehearsed = self.server.try_flask(
                "migrate", "rehearse", str(self.keycloak.log), "--json"
            )
        with times.step("migrate again"):
            again = json.loads(flask(*command, "--json"))
        assert report == {**planned, "applied": True}
        assert report["people"]["imported"] == PEOPLE
        assert report["people"]["factors"] == {
            "authenticator apps": 1, "passkeys and security keys": 1
        }  # fmt: skip
        fates = list(report["clients"].values())
        assert (len(fates), fates.count("taken")) == (CLIENTS, CLIENTS - 1)
        assert report["clients"]["api"] == "not_taken"
        assert again["people"]["imported"] == 0
        assert again["people"]["updates"] == {}
        assert not {"taken", "changed"} & {*again["clients"].values()}
        asked = {
            entry["client_id"]: entry for entry in json.loads(rehearsed.stdout)["applications"]
        }
        assert [(asked[name]["requests"] > 0, asked[name]["different"]) for name in
                ("web", "mobile")] == [(True, 0), (True, 0)]  # fmt: skip

    def sign_in_all(self, visit: Visit, device: Visit) -> None:
        """Sign in the same people with all that they had, at applications that did not change."""
        for application, name in ((self.web, "dana"), (self.web, "rita"), (self.mobile, "person7")):
            visit.sign_in_here(application, name)
            if application is self.mobile:  # any program of the device can pose as this one
                visit.page.get_by_role("button", name="Allow").click()
            after, before = visit.result(application)["claims"], self.before[name]["claims"]
            for claims in (after, before):
                claims.setdefault("roles", []).sort()
            assert {key: after.get(key) for key in SAME} == {key: before.get(key) for key in SAME}
            assert after["iss"] == before["iss"] == self.issuer
            assert application.get(f"refresh/{name}")["claims"]["sub"] == before["sub"]
        visit.sign_in_here(self.web, "otto")
        visit.page.get_by_label("Code", exact=False).first.fill(pyotp.TOTP(self.totp).now())
        visit.page.get_by_role("button", name="Continue").first.click()
        assert visit.result(self.web)["claims"]["preferred_username"] == "otto"
        device.go(self.web)
        assert device.result(self.web)["claims"]["preferred_username"] == "paula"
        visit.sign_in_here(self.web, "erin")
        visit.page.get_by_role("alert").wait_for()


def test_nobody_notices_the_move(
    tmp_path: Path, visit: Visit, device: Visit, record_property: Callable[[str, object], None]
) -> None:
    evening = Evening(tmp_path)
    keycloak, web, mobile, times = evening.keycloak, evening.web, evening.mobile, evening.times
    with ExitStack() as running:
        with times.step("start Keycloak"):
            there = running.enter_context(ExitStack())
            there.enter_context(keycloak.running())
        with times.step("make the realm"):
            keycloak.create(realm(f"{web.url}/callback", f"{mobile.url}/callback"))
        for application in (web, mobile):
            running.enter_context(application.running(evening.issuer))
        with times.step("sign in at Keycloak, set up an app and a passkey"):
            evening.live_there(visit, device)
        with times.step("stop Keycloak"):
            there.close()
        with times.step("export"):
            keycloak.export("acme", evening.export)
        evening.migrate()
        with times.step("start this server at the old address"):
            running.enter_context(evening.server.serving("-b", f"127.0.0.1:{keycloak.port}"))
        # The export has neither sessions nor offline sessions: applications sign people in again.
        for application, name in ((web, "dana"), (mobile, "person7")):
            assert application.get(f"userinfo/{name}") == {"status": 401}
            refused = {"status": 400, "error": "invalid_grant"}
            assert application.get(f"refresh/{name}") == refused
        with times.step("sign in here, at the same applications"):
            evening.sign_in_all(visit, device)
        robot = requests.post(
            f"{evening.issuer}/protocol/openid-connect/token", auth=("robot", SECRET[::-1]),
            data={"grant_type": "client_credentials"}, timeout=60,
        )  # fmt: skip
        assert "access_token" in robot.json() or robot.json()["error"] == "invalid_target"
        visit.sign_in_here(web, "dana")
        visit.result(web)
        visit.page.goto(f"{web.url}/sign-out/dana")
        visit.page.wait_for_url(f"{web.url}/")
    print(times)
    record_property("timetable", str(times))


def _pbkdf2(algorithm: str, text: str) -> str:
    """A hash as an import stores it: one block of the digest."""
    key = hashlib.pbkdf2_hmac(algorithm, text.encode(), b"0123456789abcdef", 999)
    return f"$pbkdf2-{algorithm}$i=999$MDEyMzQ1Njc4OWFiY2RlZg${foreign_hashes.encoded(key)}"


def test_people_go_back_to_keycloak(app: Flask, tmp_path: Path, visit: Visit) -> None:
    """With `flask export --format keycloak`: the same subjects, passwords and codes."""
    times, file, secret = Timetable(), tmp_path / "back.json", "NZGTARSVIE2EEUCTIZXHO2SPGVGUI3JQ"
    application = Application(tmp_path, "mobile", "openid profile email")
    make_attribute(app, "department")
    with app.app_context():
        register_client(
            client_id="mobile", name="Mobile", auth_method="none", require_pkce=True,
            redirect_uris=[f"{application.url}/callback"], scope="openid profile email groups",
            own_claims=["department@id_token,userinfo=attribute:department"],
            roles=["editor=teams", "viewer=teams/red"], first_party=True, id_token_claims="all",
        )  # fmt: skip
        db.session.commit()
    users = {
        name: make_user(app, f"{name}@example.com", name=f"{name.capitalize()} Doe",
                        password=password(name), groups=groups,
                        claims={"preferred_username": name})
        for name, groups in {"dana": ["teams", "a//b"], "otto": ["teams/red", "営業"],
                             "sha1": [], "sha256": [], "sha512": []}.items()
    }  # fmt: skip
    erin = make_user(app, "erin@example.com", password=password("erin"), disabled=True,
                     claims={"preferred_username": "erin"})  # fmt: skip
    with app.app_context():
        db.session.add(totp.taken_over(users["otto"].id, secret))
        for name in ("sha1", "sha256", "sha512"):
            hashed = _pbkdf2(name, password(name))
            db.session.execute(
                update(User).where(User.id == users[name].id).values(password_hash=hashed)
            )
        is_dana = User.id == users["dana"].id
        db.session.execute(update(User).where(is_dana).values(attributes={"department": "R&D"}))
        db.session.commit()
    done = app.test_cli_runner().invoke(
        args=["export", str(file), "--format", "keycloak", "--realm", "back"]
    )
    assert done.exit_code == 0, done.output
    keycloak = Keycloak(tmp_path)
    with times.step("import"):
        keycloak.take(file)
    with ExitStack() as running:
        with times.step("start Keycloak"):
            running.enter_context(keycloak.running())
        running.enter_context(application.running(keycloak.issuer("back")))
        claims: dict[str, dict[str, Any]] = {}
        for name in users:
            with times.step(f"sign in {name}"):
                visit.sign_in_there(application, name)
                if name == "otto":
                    visit.page.fill("#otp", pyotp.TOTP(secret).now())
                    visit.page.click("#kc-login")
                claims[name] = visit.result(application)["claims"]
        visit.sign_in_there(application, "erin")
        visit.page.get_by_text("Account is disabled").wait_for()
    assert {name: entry["sub"] for name, entry in claims.items()} == {
        name: str(user.id) for name, user in users.items()
    }
    assert str(erin.id) in file.read_text()
    dana, otto = claims["dana"], claims["otto"]
    assert {name: dana[name] for name in ("email", "email_verified", "preferred_username", "name",
                                          "department", "roles")} == {
        "email": "dana@example.com", "email_verified": True, "preferred_username": "dana",
        "name": "Dana Doe", "department": "R&D", "roles": ["editor"],
    }  # fmt: skip
    assert otto["roles"] == ["viewer"]
    assert (sorted(dana["groups"]), sorted(otto["groups"])) == (
        ["/a__b", "/teams"], ["/teams/red", "/営業"]
    )  # fmt: skip
