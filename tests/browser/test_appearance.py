"""The page of name, logo and color: its preview follows the form, and stores nothing."""

import re

from playwright.sync_api import Browser, expect

from tests.browser.conftest import Site
from tests.browser.test_accessibility import administer, check
from tests.support.logos import SVG

PREVIEW = "section.preview iframe:not(.waiting)"


def test_the_preview_follows_the_form(chrome: Browser, site: Site) -> None:
    context = chrome.new_context(
        viewport={"width": 1280, "height": 900}, locale="en", reduced_motion="reduce"
    )
    page = context.new_page()
    administer(page, site)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(f"{site.server.base_url}/admin/appearance")
    title = page.frame_locator(PREVIEW).locator("h1")
    expect(title).to_have_text("Sign in")
    check(page)
    before = page.evaluate("history.length")
    page.locator("#name").fill("Acme")
    expect(title).to_have_text("Sign in to Acme")
    page.locator("#accent_color").fill("#c8102e")
    button = page.frame_locator(PREVIEW).locator("button.primary")
    expect(button).to_have_css("background-color", "rgb(200, 16, 46)")
    page.locator("#logo").set_input_files(
        {"name": "logo.svg", "mimeType": "image/svg+xml", "buffer": SVG}
    )
    logo = page.frame_locator(PREVIEW).locator("img.logo")
    expect(logo).to_have_attribute("src", re.compile("^data:image/svg"))
    assert logo.evaluate("image => image.naturalWidth") > 0
    page.locator("#accent_color").fill("#777777")
    expect(page.frame_locator(PREVIEW).locator(".alert")).to_contain_text("contrast")
    assert page.locator("iframe").count() <= 2
    assert page.evaluate("history.length") == before
    assert complaints == []
    page.reload()
    expect(title).to_have_text("Sign in")
    state = context.storage_state()
    context.close()
    context = chrome.new_context(java_script_enabled=False, locale="en", storage_state=state)
    page = context.new_page()
    page.goto(f"{site.server.base_url}/admin/appearance")
    page.locator("#name").fill("Acme")
    page.get_by_role("button", name="Preview").click()
    expect(page.frame_locator(PREVIEW).locator("h1")).to_have_text("Sign in to Acme")
    assert page.locator("#name").input_value() == "Acme"
    assert page.url.endswith("/admin/appearance")
    context.close()
