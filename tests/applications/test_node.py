"""Express applications as the presets print them, with openid-client and with Auth.js."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, expect

from tests.applications.conftest import ADMINS, DANA, Connect, press, sign_in, sign_out
from tests.applications.software import Application, node


@contextmanager
def running(app: Application, name: str, secret: str) -> Iterator[None]:
    """Do what the preset says."""
    app.uses(node(name))
    app.shell(app.printed("Packages").replace("npm install", "npm ls"))
    app.write(".env")
    app.run(secret)
    app.write("app.mjs")
    app.environ["PORT"] = str(app.port)
    with app.running("node", "--env-file=.env", "app.mjs"):
        yield


def shown(page: Page) -> Any:
    """What the application shows of the person."""
    return json.loads(page.locator("body").inner_text())


def test_openid_client(connect: Connect, page: Page) -> None:
    app = connect("openid-client")
    with running(app, "openid-client", "Session secret"):
        page.goto(f"{app.url}/sign-in")
        sign_in(page, DANA)
        expect(page).to_have_url(f"{app.url}/")
        user = shown(page)
        assert user.pop("id")
        assert user == {"name": DANA.name, "email": DANA.email, "groups": [ADMINS, "staff"]}
        page.goto(f"{app.url}/sign-out")
        expect(page).to_have_url(f"{app.url}/")
        assert shown(page) is None
        page.goto(f"{app.url}/sign-in")
        expect(page.get_by_label("Password")).to_be_visible()


def test_authjs(connect: Connect, page: Page) -> None:
    app = connect("authjs", "--alternative", "Express")
    with running(app, "authjs", "Secret for Auth.js's cookies"):
        page.goto(f"{app.url}/auth/signin?callbackUrl=/")
        expect(page.locator("img")).to_have_count(0)  # it would come from another host
        press(page.get_by_role("button", name="Sign in with"))
        sign_in(page, DANA)
        expect(page).to_have_url(f"{app.url}/")
        user = shown(page)
        assert user.pop("id")
        assert user == {"name": DANA.name, "email": DANA.email, "groups": [ADMINS, "staff"]}
        page.goto(f"{app.url}/sign-out")
        press(page.get_by_role("button", name="Sign out"))
        sign_out(page)
        expect(page).to_have_url(f"{app.url}/")
        assert shown(page) is None
        page.goto(f"{app.url}/auth/signin")
        press(page.get_by_role("button", name="Sign in with"))
        expect(page.get_by_label("Password")).to_be_visible()
