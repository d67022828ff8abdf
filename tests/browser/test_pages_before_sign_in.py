"""What pages offer before anyone is signed in, in a real browser: languages, passwords shown."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import EMAIL, PASSWORD, WITHOUT_SCRIPTS, Site, press
from tests.browser.test_accessibility import check


@WITHOUT_SCRIPTS
def test_a_language_is_chosen_by_keyboard(page: Page, site: Site) -> None:
    """With and without scripts; the request of the application goes on."""
    page.goto(site.request(state="x", prompt="consent"))
    page.locator(".languages summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.locator("html").get_attribute("lang") == "de"
    page.locator("#email").fill(EMAIL)
    page.locator("#password").fill(PASSWORD)
    press(page.locator("form button.primary"))
    assert "/consent" in page.url
    assert page.locator("html").get_attribute("lang") == "de"


def test_a_password_is_shown(page: Page, site: Site, scripts: bool) -> None:
    page.goto(f"{site.server.base_url}/sign-in")
    button = page.get_by_role("button", name="Show password")
    if not scripts:
        assert button.count() == 0
        return
    field = page.locator("#password")
    field.fill("not the password")
    field.press("Tab")
    page.keyboard.press("Enter")
    expect(field).to_have_attribute("type", "text")
    expect(button).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Space")
    expect(field).to_have_attribute("type", "password")
    page.keyboard.press("Space")
    sent = []
    page.on("request", lambda request: sent.append(request.post_data))
    page.locator("#email").fill(EMAIL)
    press(page.locator("form button.primary"))
    assert "password=not+the+password" in str(sent[0])
    expect(field).to_have_attribute("type", "password")


@pytest.mark.parametrize(
    ("locale", "width"), [pytest.param("en", 1280, marks=pytest.mark.exhaustive), ("ar", 320)]
)
def test_axe_finds_nothing_in_the_menu(
    chrome: Browser, site: Site, locale: str, width: int
) -> None:
    context = chrome.new_context(
        locale=locale,
        color_scheme="dark" if locale == "ar" else "light",
        viewport={"width": width, "height": 640},
    )
    page = context.new_page()
    page.goto(f"{site.server.base_url}/sign-in")
    page.locator(".languages summary").click()
    page.locator("button.show").click()
    check(page)
    for button in page.locator(".languages button").all():
        box = button.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
