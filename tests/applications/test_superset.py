"""Apache Superset."""

import json
import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.applications.conftest import ADMINS, DANA, SAM, Connect, sign_in, sign_out
from tests.applications.software import python, run

OWN = """
SECRET_KEY = "a secret key for this test, and for this test alone"
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
"""


def prepare(folder: Path) -> None:
    """Superset's own tables and roles: they take longer than all that follows."""
    (folder / "superset_config.py").write_text(OWN.format(folder=folder))
    for command in (["db", "upgrade"], ["init"]):
        superset = str(folder / "bin/superset")
        run(superset, *command, PYTHONPATH=str(folder), SUPERSET_HOME=str(folder))


@pytest.mark.skipif("APPLICATIONS_LARGE" not in os.environ, reason="takes minutes")
def test_superset(connect: Connect, page: Page) -> None:
    superset = python("superset", prepare)
    app = connect("superset", "--option", f"admin_group={ADMINS}")
    app.uses(superset)
    shutil.copy(superset / "superset.db", app.folder)
    app.run("Authlib")
    app.write("custom_sso_security_manager.py")
    app.write("superset_config.py", before=OWN.format(folder=app.folder))
    app.environ |= {"PYTHONPATH": str(app.folder), "SUPERSET_HOME": str(app.folder)}

    def roles() -> set[str]:
        page.goto(f"{app.url}/api/v1/me/roles/")
        return set(json.loads(page.locator("body").inner_text())["result"]["roles"])

    with app.running("superset", "run", "--port", str(app.port), "--with-threads", path="/health"):
        page.goto(f"{app.url}/login/sso")
        sign_in(page, DANA)
        page.goto(f"{app.url}/user_info/")
        expect(page.locator("body")).to_contain_text(DANA.email)
        assert roles() == {"Admin", "Gamma"}
        page.goto(f"{app.url}/logout/")
        sign_out(page)
        expect(page).to_have_url(f"{app.url}/login/")
        page.goto(f"{app.url}/login/sso")
        sign_in(page, SAM)
        assert roles() == {"Gamma"}
