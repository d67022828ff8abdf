"""One sign-in opens three applications; one sign-out closes them, the one that is down later."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from werkzeug.serving import make_server

from sso.demo.application import create_sample_application
from tests.browser.conftest import EMAIL, PASSWORD, TORN, press
from tests.browser.torn import torn
from tests.support.processes import Server, free_port, wait_for
from tests.support.servers import postgresql


class Sample:
    """One sample application, which can be down."""

    def __init__(self, server: Server, name: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        client = server.register(
            name,
            f"{self.url}callback",
            *("--post-logout-redirect-uri", self.url),
            *("--backchannel-logout-uri", f"{self.url}backchannel-logout"),
        )
        self.client_id = client["client_id"]
        self.app = create_sample_application(
            issuer=server.base_url,
            client_id=client["client_id"],
            client_secret=client["client_secret"],
            secret_key="only for tests",
        )
        # Cookies do not tell ports apart; in life each application has a host of its own.
        self.app.config["SESSION_COOKIE_NAME"] = f"sample_{name}"

    @contextmanager
    def running(self) -> Iterator[None]:
        served = make_server("127.0.0.1", self.port, torn(self.app), threaded=True)
        thread = threading.Thread(target=served.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            served.shutdown()
            served.server_close()
            thread.join(10)


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.exhaustive), "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    environ: dict[str, Any] = {}
    with ExitStack() as stack:
        if request.param == "postgresql":
            environ["SSO_DATABASE_URL"] = stack.enter_context(postgresql())
        folder = tmp_path / "server"
        folder.mkdir()
        yield stack.enter_context(Server(folder, **environ).running(TORN))


def test_the_story(chrome: Browser, server: Server) -> None:
    server.flask(
        *("user", "create", "--email", EMAIL, "--name", "Dana", "--password-stdin"),
        stdin=PASSWORD + "\n",
    )
    first, second, third = (Sample(server, name) for name in ("Books", "Mail", "Wiki"))
    page = chrome.new_context().new_page()
    with first.running(), third.running(), server.worker(), server.worker():
        with second.running():
            enter(page, first, password=True)
            enter(page, second)
            enter(page, third)
        press(page.locator("#sign-out"))
        # At the third, it came back to the application by way of the server.
        expect(page.locator("#sign-in")).to_be_visible()
        assert page.url == third.url
        wait_for(lambda: signed_out(page, first), "the first application", pause=0.5)
        retried = "the dead application's delivery"
        wait_for(lambda: waiting(server, second) == 1, retried, pause=0.5)
        with second.running():
            assert not signed_out(page, second)
            wait_for(lambda: signed_out(page, second), "the second application", pause=1)
        wait_for(lambda: waiting(server, second) == 0, "an empty outbox", pause=0.5)
    # Each was told once, by one of two workers.
    log = (server.folder / "worker.log").read_text()
    assert log.count("logout_delivered") == 3
    page.goto(f"{server.base_url}/account")
    expect(page.get_by_label("Password", exact=True)).to_be_visible()
    page.context.close()


def enter(page: Page, sample: Sample, password: bool = False) -> None:
    page.goto(sample.url)
    press(page.locator("#sign-in"))
    if password:
        page.get_by_label("Email").fill(EMAIL)
        page.get_by_label("Password", exact=True).fill(PASSWORD)
        press(page.get_by_role("button", name="Sign in"))
    press(page.get_by_role("button", name="Allow"))
    expect(page.locator("#profile-email")).to_have_text(EMAIL)


def signed_out(page: Page, sample: Sample) -> bool:
    page.goto(sample.url)
    return page.locator("#sign-in").is_visible()


def waiting(server: Server, sample: Sample) -> int:
    """What `flask client show` tells of the outbox."""
    shown = json.loads(server.flask("client", "show", sample.client_id, "--json"))
    return int(shown["logout_tokens_waiting"])
