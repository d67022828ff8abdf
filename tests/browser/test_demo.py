"""The demo in Chromium: a passkey is set up, and then opens the sample application."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import press
from tests.browser.test_factors import PHONE, plug_in
from tests.journeys.test_demo import demo
from tests.support.processes import free_port


@pytest.mark.exhaustive
def test_a_passkey_in_the_demo(chrome: Browser, tmp_path: Path) -> None:
    with demo(tmp_path / "demo", free_port(), free_port()) as told:
        page = chrome.new_context().new_page()
        session, authenticator = plug_in(page, PHONE)
        page.goto(told["server"] + "/sign-in")
        page.get_by_label("Email").fill(told["email"])
        page.get_by_label("Password", exact=True).fill(told["password"])
        press(page.get_by_role("button", name="Sign in", exact=True))
        page.goto(told["server"] + "/account/factors")
        press(page.get_by_role("button", name="Add a passkey"))
        expect(page.get_by_role("heading", level=1)).to_have_text("Your recovery codes")
        page.goto(told["server"] + "/sign-out")
        press(page.get_by_role("button", name="Sign out"))
        touch = {"authenticatorId": authenticator, "enabled": False}
        session.send("WebAuthn.setAutomaticPresenceSimulation", touch)
        page.goto(told["open"] + "login")
        button = page.get_by_role("button", name="Sign in with a passkey")
        expect(button).to_be_visible()
        session.send("WebAuthn.setAutomaticPresenceSimulation", {**touch, "enabled": True})
        button.click()
        press(page.get_by_role("button", name="Allow"))
        expect(page.get_by_text("Signed in as Dana Demo")).to_be_visible()
        page.context.close()
