"""The components of administration on one page: measured, read by axe, and photographed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.components import PATH
from tests.browser.test_accessibility import check
from tests.support.processes import Server

WIDTHS = (320, 375, 768, 1280, 1920)
# Where pictures go, to be looked at; none are taken by default.
FOLDER = os.environ.get("COMPONENTS_FOLDER")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    with Server(folder).running("tests.browser.components:app") as server:
        yield server.base_url.removesuffix("/api/auth") + PATH


@pytest.mark.parametrize(
    ("locale", "scheme"),
    [pytest.param("en", "light", marks=pytest.mark.exhaustive), ("ar", "dark")],
)
def test_every_component_at_every_width(
    chrome: Browser, url: str, locale: str, scheme: str
) -> None:
    context = chrome.new_context(locale=locale, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page = context.new_page()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(url)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        is_at_the_side = page.locator("nav.side").is_visible()
        assert is_at_the_side == (width >= 1024)
        assert page.locator("button.menu").is_visible() != is_at_the_side
        if FOLDER:
            picture = Path(FOLDER) / f"components-{locale}-{scheme}-{width}.png"
            page.screenshot(path=picture, full_page=True)
        if width in (375, 1280):
            check(page)
    context.close()


def test_labels_stand_beside_their_fields_on_wide_screens(chrome: Browser, url: str) -> None:
    context = chrome.new_context(locale="en", viewport={"width": 1279, "height": 700})
    page = context.new_page()
    page.goto(url)
    for width, is_beside in ((1279, False), (1280, True)):
        page.set_viewport_size({"width": width, "height": 700})
        label, field = (
            page.locator(f"main {part}").bounding_box() for part in ("label[for=name]", "#name")
        )
        assert label
        assert field
        assert (field["y"] < label["y"] + label["height"]) == is_beside
        assert (field["x"] > label["x"] + label["width"]) == is_beside
    context.close()


def test_the_menu_opens_without_scripts(chrome: Browser, url: str) -> None:
    context = chrome.new_context(java_script_enabled=False, viewport={"width": 375, "height": 700})
    page = context.new_page()
    page.goto(url)
    page.locator("button.menu").click()
    assert page.locator("nav.side a", has_text="Audit trail").is_visible()
    assert page.locator("button.copy").count() == 0  # the text can be selected
    context.close()


def test_the_head_of_a_long_table_stays(chrome: Browser, url: str) -> None:
    page = _wide(chrome, url)
    page.locator("tbody tr").last.scroll_into_view_if_needed()
    top = page.locator("thead th").first.bounding_box()
    assert top
    assert 0 <= top["y"] < 5
    page.context.close()


def test_a_secret_is_copied(chrome: Browser, url: str) -> None:
    page = _wide(chrome, url)
    page.get_by_role("button", name="Copy: Client ID").click()
    expect(page.locator("dd button.copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "sso_ci_0123456789abcdef"
    page.context.close()


def _wide(chrome: Browser, url: str) -> Page:
    context = chrome.new_context(viewport={"width": 1280, "height": 600}, locale="en")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(url)
    return page
