"""axe finds no violation on any page, light and dark, left to right and right to left."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pyotp
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.browser.conftest import EMAIL, PASSWORD, Site, press

OPTIONS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.fixture(params=[("en", "light"), ("ar", "dark")], ids=["en light", "ar dark"])
def page(request: pytest.FixtureRequest, chrome: Browser) -> Iterator[Page]:
    locale, scheme = request.param
    context = chrome.new_context(locale=locale, color_scheme=scheme, reduced_motion="reduce")
    yield context.new_page()
    context.close()


def check(page: Page) -> None:
    """Fail with what axe says."""
    results = Axe().run(page, options=OPTIONS)
    assert len(results.response["passes"]) > 10
    assert results.violations_count == 0, f"{page.url}\n{results.generate_report()}"


def fill(page: Page, password: str = PASSWORD) -> None:
    page.locator("#email").fill(EMAIL)
    page.locator("#password").fill(password)
    press(page.locator("form button.primary"))


def test_the_way_to_an_application(page: Page, site: Site) -> None:
    page.goto(site.request(state="x", prompt="consent"))
    check(page)
    fill(page, "not the password")
    check(page)
    fill(page)
    assert "/consent" in page.url
    check(page)
    page.goto(site.request(state="x", prompt="select_account"))
    check(page)
    page.goto(site.request(state="x", prompt="login"))
    check(page)


def test_the_account_and_the_way_out(page: Page, site: Site) -> None:
    base = site.server.base_url
    page.goto(f"{base}/sign-in")
    fill(page)
    check(page)
    for width in (320, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    # By keyboard: the form opens at its row.
    page.locator("#password summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#old_password").is_visible()
    page.locator("button[value=change_password]").evaluate(
        "button => button.form.noValidate = true"
    )
    press(page.locator("button[value=change_password]"))
    assert page.locator("#old_password-error").is_visible()
    check(page)
    page.goto(f"{base}/account/confirm?action=end_all_sessions")
    check(page)
    page.goto(f"{base}/sign-out")
    check(page)
    press(page.locator("button[value=sign_out]"))
    check(page)


def test_a_page_that_names_the_application(page: Page, site: Site) -> None:
    page.goto(site.request(redirect_uri="https://elsewhere.example/cb"))
    assert page.locator("dd code").first.inner_text() in page.content()
    check(page)


@pytest.mark.parametrize("path", ["/oauth2/authorize", "/nowhere", "/sign-in?resume=x"])
def test_pages_that_say_what_is_wrong(page: Page, site: Site, path: str) -> None:
    page.goto(f"{site.server.base_url}{path}")
    check(page)


def test_the_other_pages_of_an_account(page: Page, site: Site) -> None:
    base = site.server.base_url
    page.goto(f"{base}/sign-in")
    fill(page)
    for path in ("/email", "/factors", "/factors/totp", "/activity"):
        page.goto(f"{base}/account{path}")
        assert page.url.endswith(path)
        check(page)


ADMIN_PAGES = ("", "/people?q=a", "/groups", "/audit", "/keys")


def test_administration(page: Page, site: Site) -> None:
    base, email = site.server.base_url, f"ada-{uuid4().hex}@example.com"
    made = site.server.flask(
        "user", "create", "--email", email, "--name", "Ada", "--admin", "--password-stdin",
        "--json", stdin=PASSWORD + "\n",
    )  # fmt: skip
    page.goto(f"{base}/sign-in")
    page.locator("#email").fill(email)
    page.locator("#password").fill(PASSWORD)
    press(page.locator("form button.primary"))
    page.goto(f"{base}/admin/people?q=ada")
    assert "/account/factors?at=" in page.url
    check(page)
    page.goto(page.url.replace("/factors?", "/factors/totp?"))
    secret = (page.locator(".secret").text_content() or "").replace(" ", "")
    page.locator("#code").fill(pyotp.TOTP(secret).now())
    press(page.locator("form button.primary"))
    press(page.locator("a.primary"))
    assert page.url == f"{base}/admin/people?q=ada"
    person = f"/person?id={json.loads(made)['id']}"
    for path in (*ADMIN_PAGES, person, person.replace("?", "/edit?")):
        page.goto(f"{base}/admin{path}")
        assert page.url == f"{base}/admin{path}"
        check(page)
        for width in (375, 1600):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
