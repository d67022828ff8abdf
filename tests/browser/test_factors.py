"""Second factors in Chromium: passkeys by its virtual authenticator, codes typed by hand."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyotp
import pytest
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, ViewportSize, expect

from tests.browser.conftest import PASSWORD, TORN, press
from tests.browser.test_accessibility import check
from tests.support.processes import Server

FIDO = {"protocol": "ctap2", "transport": "internal", "automaticPresenceSimulation": True}
PHONE = {**FIDO, "hasResidentKey": True, "hasUserVerification": True, "isUserVerified": True}
SECURITY_KEY = {**FIDO, "transport": "usb"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Passkeys need a host with a name; browsers take localhost for secure."""
    made = Server(tmp_path_factory.mktemp("server"), workers=1)
    made.origin = made.origin.replace("127.0.0.1", "localhost")
    made.base_url = made.environ["SSO_BASE_URL"] = f"{made.origin}/api/auth"
    with made.running(TORN):
        yield made


@pytest.fixture(scope="module")
def people(server: Server) -> list[str]:
    """Enough for each test to have one of its own."""
    found = [f"dana{number}@example.com" for number in range(7)]
    users = "".join(
        f'[[users]]\nemail = "{one}"\nname = "Dana"\ninitial_password = "env:FIRST"\n'
        for one in found
    )
    path = server.folder / "people.toml"
    path.write_text(f"format = 1\n{users}")
    server.flask("apply", str(path), FIRST=PASSWORD)
    return found


@pytest.fixture
def email(people: list[str]) -> str:
    return people.pop()


@pytest.fixture
def context(chrome: Browser) -> Iterator[BrowserContext]:
    made = chrome.new_context()
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    opened, complaints = context.new_page(), list[str]()
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    assert complaints == []


def plug_in(page: Page, kind: dict[str, Any]) -> tuple[CDPSession, str]:
    """Give the browser a virtual authenticator (WebAuthn §11)."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable", {"enableUI": False})
    made = session.send("WebAuthn.addVirtualAuthenticator", {"options": kind})
    return session, made["authenticatorId"]


def sign_in(page: Page, server: Server, email: str) -> None:
    page.goto(f"{server.base_url}/sign-in")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    press(page.get_by_role("button", name="Sign in", exact=True))


def sign_out(page: Page, server: Server) -> None:
    page.goto(f"{server.base_url}/sign-out")
    press(page.get_by_role("button", name="Sign out"))
    expect(page.get_by_role("heading", level=1)).to_have_text("You are signed out")


def add_passkey(page: Page, server: Server) -> None:
    page.goto(f"{server.base_url}/account/factors")
    press(page.get_by_role("button", name="Add a passkey"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Your recovery codes")


def methods(server: Server, email: str) -> Any:
    return json.loads(server.flask("user", "factors", email, "--json"))


def test_a_passkey_alone(page: Page, server: Server, email: str) -> None:
    """Registered, offered in the email field, and by the button."""
    session, authenticator = plug_in(page, PHONE)
    sign_in(page, server, email)
    add_passkey(page, server)
    found = methods(server, email)
    (factor,) = found["factors"]
    assert factor["name"].endswith("Chrome on Linux")  # Chromium without a window adds to its name
    assert found["recovery_codes"] == 10
    sign_out(page, server)
    # The virtual authenticator takes the offer in the email field at once.
    page.goto(f"{server.base_url}/sign-in")
    expect(page.get_by_role("heading", level=1)).to_have_text("Your account")
    sign_out(page, server)
    # Nobody touches it: the page stays, and the button works.
    touch = {"authenticatorId": authenticator, "enabled": False}
    session.send("WebAuthn.setAutomaticPresenceSimulation", touch)
    page.goto(f"{server.base_url}/sign-in")
    button = page.get_by_role("button", name="Sign in with a passkey")
    expect(button).to_be_visible()
    session.send("WebAuthn.setAutomaticPresenceSimulation", {**touch, "enabled": True})
    button.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Your account")


def test_a_security_key_after_the_password(page: Page, server: Server, email: str) -> None:
    plug_in(page, SECURITY_KEY)
    sign_in(page, server, email)
    add_passkey(page, server)
    sign_out(page, server)
    sign_in(page, server, email)
    expect(page.get_by_role("heading", level=1)).to_have_text("Two-step verification")
    press(page.get_by_role("button", name="Use a passkey"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Your account")


def test_a_form_that_waits_for_a_passkey(page: Page, server: Server, email: str) -> None:
    """The factor has become too old while an administrator was typing."""
    server.flask("user", "update", email, "--add-group", "sso-administrators")
    plug_in(page, SECURITY_KEY)
    sign_in(page, server, email)
    add_passkey(page, server)
    page.goto(f"{server.base_url}/admin/person/invite")
    typed = {"Email": "erin@example.com", "Name": "Erin <b>\"&'", "Groups": "staff\nwiki"}
    for label, text in typed.items():
        page.get_by_label(label).fill(text)
    file = server.folder / "sso.db"
    with closing(sqlite3.connect(file, timeout=10, isolation_level=None)) as connection:
        connection.execute("UPDATE browser_sessions SET second_factor_at = '2026-01-01 00:00:00'")
    press(page.get_by_role("button", name="Send the invitation"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Two-step verification")
    press(page.get_by_role("button", name="Use a passkey"))
    assert page.url.endswith("/admin/person/invite")
    expect(page.get_by_text("Nothing was changed yet.")).to_be_visible()
    for label, text in typed.items():
        expect(page.get_by_label(label)).to_have_value(text)
    press(page.get_by_role("button", name="Send the invitation"))
    expect(page.get_by_text("The account was created")).to_be_visible()


def test_a_person_who_presses_cancel(page: Page, server: Server, email: str) -> None:
    plug_in(page, SECURITY_KEY)
    sign_in(page, server, email)
    add_passkey(page, server)
    sign_out(page, server)
    sign_in(page, server, email)
    button = page.get_by_role("button", name="Use a passkey")
    expect(button).to_be_visible()
    page.evaluate("() => { navigator.credentials.get = () => Promise.reject(new Error()); }")
    button.click()
    expect(page.get_by_role("alert")).to_contain_text("did not provide a passkey")
    press(page.get_by_role("button", name="Cancel"))
    expect(page.get_by_label("Password", exact=True)).to_be_visible()


def test_axe_finds_nothing(chrome: Browser, server: Server, email: str) -> None:
    """On any page of the second factors, in the dark, on a telephone."""
    size: ViewportSize = {"width": 360, "height": 740}
    context = chrome.new_context(color_scheme="dark", viewport=size, reduced_motion="reduce")
    page = context.new_page()

    def look() -> None:
        check(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], page.url

    plug_in(page, SECURITY_KEY)
    sign_in(page, server, email)
    factors = f"{server.base_url}/account/factors"
    page.goto(factors)
    look()
    add_passkey(page, server)
    look()
    page.goto(f"{factors}/totp")
    look()
    app = pyotp.TOTP((page.locator(".secret").text_content() or "").replace(" ", ""))
    page.get_by_label("Code shown in the app").fill(app.now())
    press(page.get_by_role("button", name="Turn it on"))
    expect(page.get_by_role("status")).to_be_visible()
    look()
    sign_out(page, server)
    sign_in(page, server, email)
    page.get_by_label("Code from your authenticator app").fill("000000")
    press(page.get_by_role("button", name="Continue", exact=True))
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_text("Use a recovery code").click()
    look()
    context.close()


@pytest.mark.parametrize(
    "scripts",
    [
        pytest.param(True, id="with scripts", marks=pytest.mark.exhaustive),
        pytest.param(False, id="without scripts"),
    ],
)
def test_codes(chrome: Browser, server: Server, email: str, scripts: bool) -> None:
    """An authenticator app, then a recovery code; pages work without scripts."""
    context = chrome.new_context(java_script_enabled=scripts)
    page = context.new_page()
    sign_in(page, server, email)
    press(page.get_by_role("link", name="Set up two-step verification"))
    press(page.get_by_role("link", name="Set up an authenticator app"))
    expect(page.get_by_role("img", name="QR code")).to_be_visible()
    app = pyotp.TOTP((page.locator(".secret").text_content() or "").replace(" ", ""))
    page.get_by_label("Code shown in the app").fill("000000")
    press(page.get_by_role("button", name="Turn it on"))
    expect(page.get_by_role("alert")).to_be_visible()
    code = app.now()
    page.get_by_label("Code shown in the app").fill(code)
    press(page.get_by_role("button", name="Turn it on"))
    codes = page.get_by_label("Recovery codes").input_value().split()
    assert len(codes) == 10
    press(page.get_by_role("link", name="I have saved them"))
    sign_out(page, server)
    sign_in(page, server, email)
    page.get_by_label("Code from your authenticator app").fill(code)
    press(page.get_by_role("button", name="Continue", exact=True))
    expect(page.get_by_role("alert")).to_contain_text("already used")
    page.get_by_text("Use a recovery code").click()
    page.get_by_label("Recovery code").fill(codes[0])
    press(page.get_by_role("button", name="Continue with the recovery code"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Your account")
    context.close()
