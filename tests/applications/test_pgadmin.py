"""pgAdmin 4 in server mode."""

import os

import pytest
from playwright.sync_api import Page, expect

from tests.applications.conftest import DANA, Connect, press, sign_in
from tests.applications.software import python

OWN = """
SERVER_MODE = True
DEFAULT_SERVER_PORT = {port}
DATA_DIR = "{folder}/data"
LOG_FILE = "{folder}/log"
UPGRADE_CHECK_ENABLED = SHOW_GRAVATAR_IMAGE = False
"""


@pytest.mark.skipif("APPLICATIONS_LARGE" not in os.environ, reason="takes minutes")
def test_pgadmin(connect: Connect, page: Page) -> None:
    app = connect("pgadmin")
    app.uses(python("pgadmin"))
    app.write("config_local.py", before=OWN.format(port=app.port, folder=app.folder))
    app.environ |= {
        "PYTHONPATH": str(app.folder),  # pgAdmin imports config_local
        "PGADMIN_SETUP_EMAIL": "admin@example.com",
        "PGADMIN_SETUP_PASSWORD": "a password of its own",
    }
    with app.running("pgadmin4", path="/misc/ping"):
        page.goto(app.url)
        press(page.get_by_role("button", name="Login with"))
        sign_in(page, DANA)
        expect(page).to_have_url(f"{app.url}/browser/")
        page.locator("button", has_text="Cancel").click()  # of the dialog for a master password
        account = page.get_by_text(f"{DANA.email} (sso)")
        account.click()
        expect(page.locator("[role=menuitem]", has_text="User Management")).to_have_count(0)
        press(page.locator("[role=menuitem]", has_text="Logout"))
        expect(page).to_have_url(f"{app.url}/login?next=/")
        make_administrator = app.printed("Make somebody an administrator").splitlines()[-1]
        _, _, arguments = make_administrator.partition("setup.py ")
        app.shell(f"pgadmin4-cli {arguments.replace('you@example.com', DANA.email)}")
        press(page.get_by_role("button", name="Login with"))
        sign_in(page, DANA)
        page.locator("button", has_text="Cancel").click()
        account.click()
        expect(page.locator("[role=menuitem]", has_text="User Management")).to_be_visible()
