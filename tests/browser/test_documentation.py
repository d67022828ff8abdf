"""The documentation site, built and opened: nothing comes from another host, nothing is broken."""

import functools
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from scripts import documentation
from tests.support.processes import free_port

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

WCAG = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
    # The theme wraps wide tables; only Safari leaves them out of the tab order.
    "rules": {"scrollable-region-focusable": {"enabled": False}},
}
PAGES = ("", "tutorial/", "deploy/one-machine/", "reference/settings/", "reference/commands/")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("documentation")
    documentation.write(folder)
    zensical = Path(sys.executable).with_name("zensical")
    config = str(folder / "zensical.toml")
    built = subprocess.run(
        [zensical, "build", "--strict", "--config-file", config],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    handler = functools.partial(Quiet, directory=folder / "site")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


class Watched:
    """A page, and what went wrong on it."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page, self.origin, self.faults = page, origin, list[str]()
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("requestfailed", lambda request: self.faults.append(request.url))
        page.on("console", self._read)
        page.on("request", self._look)

    def _read(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.faults.append(message.text)

    def _look(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:", "blob:")):
            self.faults.append(request.url)


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["desktop", "phone"])
def watched(request: pytest.FixtureRequest, chrome: Browser, origin: str) -> Iterator[Watched]:
    width, scheme = request.param
    context = chrome.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, reduced_motion="reduce"
    )
    yield Watched(context.new_page(), origin)
    context.close()


def test_pages_load_nothing_from_elsewhere_and_fit(watched: Watched, origin: str) -> None:
    page = watched.page
    for path in PAGES:
        page.goto(origin + path, wait_until="networkidle")
        assert page.locator("h1").count() == 1
        width = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert width <= 0, path
        results = Axe().run(page, options=WCAG)
        assert results.violations_count == 0, f"{path}\n{results.generate_report()}"
    assert watched.faults == []


def test_the_keyboard_finds_and_opens_a_page(watched: Watched, origin: str) -> None:
    page = watched.page
    page.goto(origin, wait_until="networkidle")
    page.keyboard.press("Tab")
    expect(page.locator(".md-skip")).to_be_focused()
    page.keyboard.press("Control+k")
    page.keyboard.type("SSO_TRUSTED_PROXIES", delay=20)
    # What is typed is searched for letter by letter: Enter opens the first result of the last.
    result = page.get_by_role("option", selected=True)
    expect(result).to_have_attribute("href", re.compile(r"\?h=SSO_TRUSTED_PROXIES\b"))
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url.rstrip("/") != origin.rstrip("/"))
    expect(page.locator("article")).to_contain_text("SSO_TRUSTED_PROXIES")
    assert watched.faults == []


def test_the_colors_follow_the_system_and_the_reader(watched: Watched, origin: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme="dark")
    page.goto(origin, wait_until="networkidle")
    assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
    page.get_by_title("Switch to light mode").click()
    assert page.locator("body").get_attribute("data-md-color-scheme") == "default"
    page.reload()
    assert page.locator("body").get_attribute("data-md-color-scheme") == "default"
    assert watched.faults == []
