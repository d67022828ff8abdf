"""The page for devices in Chromium, as on a phone: 375 px wide, left to right and right to left."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, Page, ViewportSize, expect

from sso.config.client_fields import DEVICE_CODE
from tests.browser.conftest import EMAIL, PASSWORD, WITHOUT_SCRIPTS, Site, press
from tests.browser.test_accessibility import check

PHONE = ViewportSize(width=375, height=812)


@pytest.fixture(
    params=[
        ("en", "light"),
        pytest.param(("ar", "dark"), marks=pytest.mark.exhaustive),
        pytest.param(("de", "light"), marks=pytest.mark.exhaustive),
    ],
    ids=["en", "ar", "de"],
)
def phone(request: pytest.FixtureRequest, chrome: Browser, scripts: bool) -> Iterator[Page]:
    locale, scheme = request.param
    context = chrome.new_context(
        locale=locale, color_scheme=scheme, viewport=PHONE, java_script_enabled=scripts,
        reduced_motion="reduce",
    )  # fmt: skip
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def device(site: Site) -> str:
    made = site.server.flask(
        "client", "create", "--name", "Television in the living room", "--public", "--device",
        "--scope", "openid profile email offline_access", "--json",
    )  # fmt: skip
    return str(json.loads(made)["client_id"])


def post(site: Site, path: str, **form: str) -> Any:
    return requests.post(f"{site.server.base_url}/oauth2/{path}", data=form, timeout=60).json()


def look(page: Page, scripts: bool) -> None:
    """Nothing is wider than the phone, and axe, which is a script, finds no fault."""
    width = page.evaluate("document.documentElement.scrollWidth") if scripts else PHONE["width"]
    assert width <= PHONE["width"]
    if scripts:
        check(page)


@pytest.mark.parametrize(
    "scripts",
    [pytest.param(True, id="with scripts"),
     pytest.param(False, id="without scripts", marks=pytest.mark.exhaustive)],
    indirect=True,
)  # fmt: skip
def test_a_person_signs_a_device_in(phone: Page, site: Site, device: str, scripts: bool) -> None:
    codes = post(site, "device_authorization", client_id=device,
                 scope="openid profile email offline_access")  # fmt: skip
    phone.goto(codes["verification_uri"])
    look(phone, scripts)
    phone.locator("#user_code").fill("bcdf ghjk")
    press(phone.locator("form button.primary"))
    expect(phone.locator("#problem")).to_be_visible()
    look(phone, scripts)
    phone.locator("#user_code").fill(codes["user_code"].lower().replace("-", " "))
    press(phone.locator("form button.primary"))
    phone.locator("#email").fill(EMAIL)
    phone.locator("#password").fill(PASSWORD)
    press(phone.locator("form button.primary"))
    expect(phone.locator("p.device-code")).to_have_text(codes["user_code"])
    expect(phone.locator("h1")).to_contain_text("Television in the living room")
    look(phone, scripts)
    press(phone.locator("button[value=allow]"))
    look(phone, scripts)
    answer = post(site, "token", client_id=device, grant_type=DEVICE_CODE,
                  device_code=codes["device_code"])  # fmt: skip
    assert answer["scope"] == "openid profile email offline_access"
    phone.goto(f"{site.server.base_url}/account")
    look(phone, scripts)


@WITHOUT_SCRIPTS
def test_a_link_with_the_code(phone: Page, site: Site, device: str, scripts: bool) -> None:
    codes = post(site, "device_authorization", client_id=device, scope="openid")
    phone.goto(codes["verification_uri_complete"])
    expect(phone.locator("#user_code")).to_have_value(codes["user_code"])
    look(phone, scripts)
    press(phone.locator("form button.primary"))
    phone.locator("#email").fill(EMAIL)
    phone.locator("#password").fill(PASSWORD)
    press(phone.locator("form button.primary"))
    press(phone.locator("button[value=deny]"))
    look(phone, scripts)
    answer = post(site, "token", client_id=device, grant_type=DEVICE_CODE,
                  device_code=codes["device_code"])  # fmt: skip
    assert answer["error"] == "access_denied"
