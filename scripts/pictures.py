"""The pictures of pages in README.md and docs/, light and dark, from `flask demo` in Chromium.

    .venv/bin/python -m scripts.pictures

writes docs/assets/NAME-light.webp and NAME-dark.webp. It needs Playwright (`.[dev]`) and a
Chromium; CHROMIUM names one that Playwright did not install.
"""

import json
import os
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sso.mfa import totp

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "docs/assets"
NAMES = ("sign-in", "consent", "account", "overview", "people", "application", "appearance")
SCHEMES = ("light", "dark")
MOST_BYTES = 60_000  # of a picture
_NARROW, _WIDE = {"width": 760, "height": 760}, {"width": 1280, "height": 800}
_QUALITIES = (82, 70, 60, 50)
_SETTLED = 500  # milliseconds in which colors change


def file_of(name: str, scheme: str) -> Path:
    return ASSETS / f"{name}-{scheme}.webp"


@contextmanager
def _demo(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Run the demo, and yield what it prints."""
    command = [sys.executable, "-m", "flask", "demo", "--json", "--folder", str(folder)]
    process = subprocess.Popen(  # noqa: S603 (no input of others)
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process:
        try:
            assert process.stdout
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


def _take(page: "Page", name: str) -> None:
    """Save the page in both schemes."""
    session = page.context.new_cdp_session(page)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]  # literals
        page.wait_for_timeout(_SETTLED)
        for quality in _QUALITIES:
            shot = session.send("Page.captureScreenshot", {"format": "webp", "quality": quality})
            data = b64decode(shot["data"])
            if len(data) <= MOST_BYTES:
                break
        else:
            raise SystemExit(f"{name} has more than {MOST_BYTES} bytes")
        file_of(name, scheme).write_bytes(data)


def _of_person(browser: "Browser", demo: Mapping[str, Any]) -> None:
    page = browser.new_context(viewport=_NARROW).new_page()  # type: ignore[arg-type]  # a typed dict
    page.goto(demo["open"] + "login")
    _take(page, "sign-in")
    _sign_in(page, demo["email"], demo["password"])
    _take(page, "consent")
    page.get_by_role("button", name="Allow").click()
    page.wait_for_url(demo["open"] + "**")
    page.goto(demo["server"] + "/account")
    _take(page, "account")
    page.context.close()


def _of_administrator(browser: "Browser", demo: Mapping[str, Any]) -> None:
    page = browser.new_context(viewport=_WIDE).new_page()  # type: ignore[arg-type]  # a typed dict
    page.goto(demo["console"] + "/people")
    _sign_in(page, demo["admin_email"], demo["admin_password"])
    page.get_by_label("Code from your authenticator").fill(totp.code(demo["admin_setup_key"]))
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url("**/admin/people")
    _take(page, "people")
    page.goto(demo["console"])
    _take(page, "overview")
    page.goto(demo["console"] + "/applications")
    page.get_by_role("link", name="Wiki", exact=True).click()
    _take(page, "application")
    page.goto(demo["console"] + "/appearance")
    page.get_by_label("Name", exact=True).fill("Acme Corp")
    page.get_by_label("Accent color", exact=True).fill("#0f7b5f")
    page.frame_locator("iframe:not(.waiting)").get_by_text("Sign in to Acme Corp").wait_for()
    page.wait_for_timeout(2 * _SETTLED)  # the color follows
    _take(page, "appearance")
    page.context.close()


def _sign_in(page: "Page", email: str, password: str) -> None:
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_load_state()


def main() -> None:
    from playwright.sync_api import sync_playwright  # the tests of the documents do without

    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        options = ["--disable-gpu", "--disable-background-networking", "--no-sandbox"]
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM"), args=options
        )
        with _demo(Path(folder)) as demo:
            _of_person(browser, demo)
            _of_administrator(browser, demo)
        browser.close()


if __name__ == "__main__":
    main()
