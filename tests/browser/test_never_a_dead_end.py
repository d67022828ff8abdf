"""Whatever a person does on the way, it ends in the application or on a page that leads on."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page, Playwright, expect
from werkzeug.serving import make_server

from tests.browser.conftest import EMAIL, PASSWORD, Site, press
from tests.browser.torn import torn
from tests.conftest import Clock
from tests.support.factories import make_client, make_user
from tests.support.processes import CHROMIUM_ARGUMENTS, chromium, free_port


@pytest.fixture
def page(chrome: Browser) -> Iterator[Page]:
    context = chrome.new_context()
    yield context.new_page()
    context.close()


def fill(page: Page) -> None:
    page.get_by_label("Email").fill(EMAIL)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    press(page.get_by_role("button", name="Sign in"))


def test_back_after_consent_and_forward_again(page: Page, site: Site) -> None:
    page.goto(site.request(state="one", prompt="consent"))
    fill(page)
    press(page.get_by_role("button", name="Allow"))
    page.wait_for_url(f"{site.echo}?code=**")
    page.go_back()
    # The consent page again, or straight on to the application: never an error.
    allow = page.get_by_role("button", name="Allow")
    if allow.is_visible():
        press(allow)
    page.wait_for_url(f"{site.echo}?code=**state=one**")


def test_two_tabs_with_two_applications(page: Page, site: Site) -> None:
    page.goto(site.sample)
    press(page.locator("#sign-in"))
    other = page.context.new_page()
    other.goto(site.request(state="two"))
    fill(page)
    fill(other)  # its form is older than the sign-in of the first tab
    for tab, end in ((page, site.sample), (other, site.echo)):
        allow = tab.get_by_role("button", name="Allow")
        if allow.is_visible():
            press(allow)
        tab.wait_for_url(re.compile(re.escape(end)))


def test_a_restart_between_sign_in_and_consent(page: Page, site: Site) -> None:
    page.goto(site.request(state="three", prompt="consent"))
    fill(page)
    expect(page.get_by_role("button", name="Allow")).to_be_visible()
    site.server.restart()
    press(page.get_by_role("button", name="Allow"))
    page.wait_for_url(f"{site.echo}?code=**state=three**")


@pytest.fixture
def without_cookies(playwright: Playwright, tmp_path: Path) -> Iterator[Page]:
    """A browser whose settings block all cookies."""
    settings = tmp_path / "Default" / "Preferences"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"profile": {"default_content_setting_values": {"cookies": 2}}}))
    context = playwright.chromium.launch_persistent_context(
        tmp_path, executable_path=chromium(whole=True), args=CHROMIUM_ARGUMENTS
    )
    yield context.new_page()
    context.close()


def test_cookies_are_blocked(without_cookies: Page, page: Page, site: Site) -> None:
    without_cookies.goto(site.request(state="four"))
    fill(without_cookies)
    expect(without_cookies.get_by_role("heading")).to_have_text("Please allow cookies")
    again = without_cookies.get_by_role("link", name="Try again").get_attribute("href")
    # With cookies, the link leads on from where the person was.
    page.goto(f"{site.server.origin}{again}")
    fill(page)
    if page.get_by_role("button", name="Allow").is_visible():
        press(page.get_by_role("button", name="Allow"))
    page.wait_for_url(f"{site.echo}?code=**state=four**")


@pytest.mark.parametrize(
    "hours",
    [
        pytest.param(12, id="overnight"),
        pytest.param(30, id="over the weekend", marks=pytest.mark.exhaustive),
    ],
)
def test_a_page_left_open(
    page: Page, clock: Clock, make_app: Callable[..., Flask], hours: int
) -> None:
    """A real server in this process, so that its clock can be moved."""
    port = free_port()
    app = make_app(SSO_BASE_URL=f"http://127.0.0.1:{port}/api/auth")
    make_user(app)
    client = make_client(app)
    served = make_server("127.0.0.1", port, torn(app), threaded=True)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    page.route("https://books.example/**", lambda route: route.fulfill(body="Books"))
    page.goto(f"http://127.0.0.1:{port}/api/auth/oauth2/authorize?{urlencode(client.parameters())}")
    clock.move(hours=hours)
    fill(page)
    if hours < 24:
        # Playwright's routes see no redirects: nobody answers at the address it ends at.
        with page.expect_request(f"{client.redirect_uri}?code=**"):
            page.get_by_role("button", name="Allow").click()
    else:
        expect(page.get_by_role("heading")).to_have_text("Please start again")
        press(page.get_by_role("link", name="Back to Books"))
        page.wait_for_url("https://books.example/")
    served.shutdown()
