"""Applications in Flask and FastAPI with Authlib, as the presets print them."""

import pytest
from playwright.sync_api import Page

from tests.applications.conftest import (
    ADMINS,
    DANA,
    SAM,
    Connect,
    check_example,
    shown,
    sign_in,
)
from tests.applications.software import python

PRESETS = {
    "flask-authlib": ("Key for Flask's session cookie", "app.py", "flask run --port {port}"),
    "fastapi": ("Key for the session cookie", "main.py", "uvicorn main:app --port {port}"),
}


@pytest.mark.parametrize(
    "preset",
    [
        pytest.param(one, marks=pytest.mark.exhaustive) if one == "fastapi" else one
        for one in PRESETS
    ],
)
def test_authlib(connect: Connect, page: Page, preset: str) -> None:
    secret, file, command = PRESETS[preset]
    app = connect(preset, "--option", f"admin_group={ADMINS}")
    app.uses(python("authlib"))
    app.run("Packages")
    app.write(".env")
    app.run(secret)
    app.write(file)
    serve = f"set -a && . ./.env && exec {command.format(port=app.port)}"
    with app.running("bash", "-c", serve):
        check_example(app, page)
        sign_in(page, DANA)
        page.goto(f"{app.url}/admin")
        assert shown(page) == {"welcome": DANA.name}
        page.goto(f"{app.url}/sign-out")
        page.goto(f"{app.url}/me")
        sign_in(page, SAM)
        answer = page.goto(f"{app.url}/admin")
        assert answer is not None
        assert answer.status == 403
