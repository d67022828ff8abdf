"""The whole story, in Chromium: from the sample application's button to the profile."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import EMAIL, PASSWORD, WITHOUT_SCRIPTS, Site, press


def fill(page: Page, password: str) -> None:
    page.get_by_label("Email").fill(EMAIL)
    page.get_by_label("Password", exact=True).fill(password)
    press(page.get_by_role("button", name="Sign in"))


@WITHOUT_SCRIPTS
def test_sign_in_to_the_sample_application(page: Page, site: Site) -> None:
    page.goto(site.sample)
    press(page.locator("#sign-in"))
    fill(page, "not the password")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("Password", exact=True)).to_have_value("")
    fill(page, PASSWORD)
    allow = page.get_by_role("button", name="Allow")
    if allow.is_visible():  # the second time, the consent is remembered
        expect(page.get_by_role("heading")).to_contain_text("Sample application")
        expect(page.get_by_role("main")).to_contain_text(EMAIL)
        press(allow)
    expect(page).to_have_url(re.compile(re.escape(site.sample)))
    expect(page.locator("#profile-email")).to_have_text(EMAIL)
    expect(page.locator("#profile-name")).to_have_text("Dana Demo")
    expect(page.locator("#profile-email-verified")).to_have_text("false")
    press(page.locator("#refresh"))
    expect(page.locator("#refreshed")).to_be_visible()
    page.goto(f"{site.server.base_url}/sign-out")
    press(page.get_by_role("button", name="Sign out"))
    expect(page.get_by_role("heading")).to_have_text("You are signed out")
    page.goto(f"{site.server.base_url}/account")
    expect(page.get_by_label("Password", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("scripts", "button"),
    [
        (True, "Allow"),
        (False, "Cancel"),
        pytest.param(True, "Cancel", marks=pytest.mark.exhaustive),
        pytest.param(False, "Allow", marks=pytest.mark.exhaustive),
    ],
    indirect=["scripts"],
)
def test_form_post_posts_itself(page: Page, site: Site, scripts: bool, button: str) -> None:
    """By a script under a strict policy, or by its button; `state` arrives unchanged."""
    state = 'a b%20"<&>é+'
    page.goto(site.request(state=state, response_mode="form_post", prompt="consent"))
    fill(page, PASSWORD)
    press(page.get_by_role("button", name=button))
    if not scripts:
        page.get_by_role("button", name="Continue").click()
    page.wait_for_url(site.echo)
    received = json.loads(page.locator("body").inner_text())
    assert received["state"] == state
    assert received["iss"] == site.server.base_url
    if button == "Allow":
        assert received["code"]
    else:
        assert received["error"] == "access_denied"


@WITHOUT_SCRIPTS
def test_a_posted_request_from_another_site_finds_the_session(page: Page, site: Site) -> None:
    """OIDC Core §3.1.2.1 demands POST; browsers keep SameSite cookies back in it."""
    page.goto(site.request(state="x"))
    fill(page, PASSWORD)
    if "/consent" in page.url:
        press(page.get_by_role("button", name="Allow"))
    page.wait_for_url(f"{site.echo}?**")
    values = {
        "response_type": "code", "client_id": site.echo_client_id, "redirect_uri": site.echo,
        "state": "again", "prompt": "none",
    }  # fmt: skip
    fields = "".join(f"<input name={name} value={value}>" for name, value in values.items())
    action = f"{site.server.base_url}/oauth2/authorize"
    form = f"<form method=post action={action}>{fields}<button>Go</button></form>"
    # Another host name is another site; the application forbids forms, so the page is blank.
    elsewhere = site.sample.replace("127.0.0.1", "localhost")
    page.route(f"{elsewhere}**", lambda route: route.fulfill(body=form, content_type="text/html"))
    page.goto(elsewhere)
    press(page.get_by_role("button", name="Go"))
    page.wait_for_url(f"{site.echo}?code=**")
    assert "state=again" in page.url


@WITHOUT_SCRIPTS
def test_an_unknown_client_gets_a_page(page: Page, site: Site) -> None:
    answer = page.goto(f"{site.server.base_url}/oauth2/authorize?client_id=nobody&state=x")
    assert answer is not None
    assert answer.status == 400
    expect(page.get_by_role("alert")).to_contain_text("is not registered here")
