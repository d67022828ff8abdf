"""Sign-in through other servers, with their real pages: one of ours, and node-oidc-provider.

The other one of ours is at localhost: cookies do not tell ports apart.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from tests.applications.conftest import DANA, PASSWORD, press
from tests.applications.software import node, node_program
from tests.browser.test_single_sign_out import Sample
from tests.support.processes import Server, free_port, wait_for

PROGRAM = Path(__file__).parent / "programs" / "oidc_provider.mjs"
UPSTREAM = """
[provider.head-office]
type = "oidc"
name = "Head Office"
issuer = "{there}"
client_id = "{client_id}"
client_secret_file = "{folder}/secret"
allow_private_addresses = true
trust_email = true
sign_up = true
sign_out_upstream = true

[provider.partner]
type = "oidc"
name = "Partner"
issuer = "{partner}"
client_id = "us"
client_secret_env = "PARTNER_SECRET"
allow_private_addresses = true
domains = ["example.org"]
trust_email = true
sign_up = true
sign_out_upstream = true
"""


class Chain(NamedTuple):
    here: Server
    there: Server
    app: Sample


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """An application, the server that it knows, and the two that this one asks."""
    folder = tmp_path_factory.mktemp("here")
    here, there = Server(folder, workers=1), Server(tmp_path_factory.mktemp("there"), workers=1)
    there.base_url = there.environ["SSO_BASE_URL"] = f"http://localhost:{there.port}/api/auth"
    at, port = f"{here.base_url}/sign-in/callback", free_port()
    partner = f"http://localhost:{port}"
    with there.running():
        new = ("user", "create", "--email", DANA.email, "--name", DANA.name, "--email-verified")
        there.flask(*new, "--password-stdin", stdin=PASSWORD)
        client = there.register(
            "Here",
            f"{at}/head-office",
            *("--post-logout-redirect-uri", f"{here.base_url}/sign-out"),
            *("--backchannel-logout-uri", f"{here.base_url}/backchannel-logout/head-office"),
            "--first-party",
        )
        (folder / "secret").write_text(client["client_secret"])
        (folder / "upstream.toml").write_text(
            UPSTREAM.format(
                there=there.base_url, client_id=client["client_id"], folder=folder, partner=partner
            )
        )
        here.environ["SSO_UPSTREAM_FILE"] = str(folder / "upstream.toml")
        here.environ["PARTNER_SECRET"] = "a secret for tests"
        modules = node("oidc-provider")
        program = modules / PROGRAM.name  # modules are found beside the program
        program.write_text(PROGRAM.read_text())
        arguments = (partner, str(port), f"{at}/partner", f"{here.base_url}/sign-out")
        with subprocess.Popen([node_program(), program, *arguments]) as process:
            try:
                wait_for(lambda: _answers(partner), "node-oidc-provider")
                with here.running(), here.worker(), there.worker():
                    app = Sample(here, "Books")
                    with app.running():
                        yield Chain(here, there, app)
            finally:
                process.terminate()


def _answers(issuer: str) -> bool:
    try:
        return requests.get(f"{issuer}/.well-known/openid-configuration", timeout=5).ok
    except (requests.ConnectionError, requests.Timeout):
        return False


@pytest.fixture
def page(chrome: Browser) -> Iterator[Page]:
    context = chrome.new_context()
    yield context.new_page()
    context.close()


def enter(page: Page, chain: Chain) -> None:
    """From the application to the first page of the other server of ours."""
    page.goto(chain.app.url)
    press(page.locator("#sign-in"))
    press(page.get_by_role("button", name="Continue with Head Office"))


def test_another_server_of_ours(chain: Chain, page: Page) -> None:
    """Application → here → there and back, and sign-out in both directions."""
    enter(page, chain)
    assert page.url.startswith(chain.there.base_url)
    page.get_by_label("Email").fill(DANA.email)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    press(page.get_by_role("button", name="Sign in", exact=True))
    assert page.url.startswith(chain.here.base_url)
    press(page.get_by_role("button", name="Allow"))
    expect(page.locator("#profile-email")).to_have_text(DANA.email)

    # From here to there: the next sign-in asks for the password there.
    press(page.locator("#sign-out"))
    page.wait_for_url(chain.app.url)
    expect(page.locator("#sign-in")).to_be_visible()
    enter(page, chain)
    expect(page.get_by_label("Password", exact=True)).to_be_visible()
    page.get_by_label("Email").fill(DANA.email)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    press(page.get_by_role("button", name="Sign in", exact=True))
    expect(page.locator("#profile-email")).to_have_text(DANA.email)

    # From there to here: by the back channel, and on to the application.
    page.goto(f"{chain.there.base_url}/sign-out")
    press(page.get_by_role("button", name="Sign out"))
    wait_for(lambda: _is_asked(page, chain), "the end of the session here", pause=0.3)
    page.goto(chain.app.url)
    wait_for(lambda: _is_out(page, chain), "the end of the application's session", pause=0.3)


def test_node_oidc_provider(chain: Chain, page: Page) -> None:
    """Its own pages; the email address leads there, and comes from userinfo."""
    page.goto(f"{chain.here.base_url}/sign-in")
    page.get_by_label("Email").fill("erin@example.org")
    press(page.get_by_role("button", name="Sign in", exact=True))
    page.locator("input[name=login]").fill("erin")
    page.locator("input[name=password]").fill("any")
    press(page.get_by_role("button", name="Sign-in"))
    press(page.get_by_role("button", name="Continue"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Your account")
    expect(page.locator("main")).to_contain_text("erin@example.org")
    press(page.get_by_role("link", name="Sign out").first)
    press(page.get_by_role("button", name="Sign out"))
    page.get_by_role("button", name="Yes, sign me out").click()
    page.wait_for_url(f"{chain.here.base_url}/sign-out**")
    expect(page.get_by_role("heading", level=1)).to_contain_text("signed out")


def _is_asked(page: Page, chain: Chain) -> bool:
    page.goto(f"{chain.here.base_url}/account")
    return page.get_by_label("Password", exact=True).is_visible()


def _is_out(page: Page, chain: Chain) -> bool:
    page.goto(chain.app.url)
    return page.locator("#sign-in").is_visible()
