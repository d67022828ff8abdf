"""Open WebUI. It takes 7 GB, so it runs where `APPLICATIONS_LARGE` is set, and not in CI."""

import os

import pytest
from playwright.sync_api import Page, expect

from tests.applications.conftest import DANA, SAM, Connect, press, sign_in
from tests.applications.software import python
from tests.support.processes import Server

GROUP = "it's ops"  # a file of environment variables holds no more than that


@pytest.mark.skipif("APPLICATIONS_LARGE" not in os.environ, reason="takes 7 GB")
def test_open_webui(connect: Connect, page: Page, server: Server) -> None:
    server.flask("user", "update", DANA.email, "--add-group", GROUP)
    app = connect("open-webui", "--option", f"admin_group={GROUP}")
    app.uses(python("open-webui"))
    app.write("Environment", ".env")
    app.environ |= {
        "DATA_DIR": str(app.folder),
        "OFFLINE_MODE": "true",
        "RAG_EMBEDDING_ENGINE": "openai",  # no model is fetched
    }
    serve = f"set -a; . ./.env; exec open-webui serve --host 127.0.0.1 --port {app.port}"
    with app.running("bash", "-c", serve, path="/health", seconds=300):
        # The first account is an administrator, whatever its groups.
        for person in (SAM, DANA):
            page.goto(f"{app.url}/auth")
            start = page.get_by_text("Get started")
            enter = page.get_by_role("button", name="Continue with")
            expect(start.or_(enter).first).to_be_visible()
            if start.is_visible():
                start.click()
            press(enter)
            sign_in(page, person)
            expect(page.get_by_text(f"Hello, {person.name}")).to_be_visible()
            account = page.evaluate("fetch('/api/v1/auths/').then(answer => answer.json())")
            assert (account["email"], account["role"]) == (person.email, "admin")
            close = page.get_by_text("Okay, Let's Go")
            if close.is_visible():
                close.click()
            page.get_by_label("User menu").first.click()
            page.get_by_text("Sign Out").click()
            expect(page).to_have_url(f"{app.url}/auth?state=logout")
