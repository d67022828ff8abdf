"""Debian's Chromium, driven by Playwright."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Playwright, sync_playwright

from tests.support.processes import CHROMIUM_ARGUMENTS, chromium


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def chrome(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_ARGUMENTS)
    yield browser
    browser.close()


def press(button: Locator) -> None:
    """Click what leads to another page, and wait for the whole of it: a click does not."""
    with button.page.expect_navigation():
        button.click()
