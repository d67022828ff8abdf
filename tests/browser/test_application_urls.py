"""Addresses of applications are registered in the form in which a browser sends them."""

from playwright.sync_api import Browser

from tests.presets.test_application_url import TAKEN


def test_a_browser_has_the_same_form(chrome: Browser) -> None:
    page = chrome.new_page()
    found = {text: page.evaluate("text => new URL(text).href", text) for text in TAKEN}
    page.close()
    assert {text: href.rstrip("/") for text, href in found.items()} == TAKEN
