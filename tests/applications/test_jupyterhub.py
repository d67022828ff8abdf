"""JupyterHub with oauthenticator."""

from playwright.sync_api import Page, expect

from tests.applications.conftest import (
    ADMINS,
    DANA,
    DESKS,
    SAM,
    Connect,
    give_roles_and_desk,
    press,
    sign_in,
    sign_out,
)
from tests.applications.software import node, python
from tests.support.processes import Server, free_port

OWN = """
c.JupyterHub.bind_url = "{url}"
c.JupyterHub.hub_port = {hub}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.JupyterHub.spawner_class = "simple"
c.Authenticator.auto_login = False
"""
ROLES = """
c.GenericOAuthenticator.auth_state_groups_key = "oauth_user.roles"
c.GenericOAuthenticator.admin_groups = {"admin"}
c.GenericOAuthenticator.username_claim = "desk"
"""


def test_jupyterhub(connect: Connect, page: Page, server: Server) -> None:
    app = connect("jupyterhub", "--option", f"admin_group={ADMINS}")
    app.uses(python("jupyterhub"), node("jupyterhub"))
    own = OWN.format(url=app.url, hub=free_port(), proxy=free_port())
    app.write("jupyterhub_config.py", before=own)
    name, _, value = app.run("Packages and the key for stored tokens").split()[-1].partition("=")
    app.environ[name] = value
    with app.running("jupyterhub", "-f", "jupyterhub_config.py", path="/hub/health"):
        page.goto(f"{app.url}/hub/home")
        press(page.get_by_role("button", name="Sign in"))
        sign_in(page, DANA)
        expect(page).to_have_url(f"{app.url}/hub/home")
        expect(page.get_by_role("navigation")).to_contain_text(DANA.email)
        page.goto(f"{app.url}/hub/admin")
        expect(page.get_by_role("button", name="Shutdown Hub")).to_be_visible()
        press(page.locator("#logout"))
        sign_out(page)
        expect(page).to_have_url(f"{app.url}/hub/login")
        page.goto(f"{app.url}/hub/home")
        press(page.get_by_role("button", name="Sign in"))
        sign_in(page, SAM)
        expect(page.get_by_role("navigation")).to_contain_text(SAM.email)
        expect(page.get_by_role("link", name="Admin")).to_have_count(0)
        press(page.locator("#logout"))
        sign_out(page)

    # The same with roles, and the user name from a claim of its own.
    give_roles_and_desk(app, server)
    with (app.folder / "jupyterhub_config.py").open("a") as file:
        file.write(ROLES)
    with app.running("jupyterhub", "-f", "jupyterhub_config.py", path="/hub/health"):
        for person, is_administrator in ((DANA, True), (SAM, False)):
            page.goto(f"{app.url}/hub/home")
            press(page.get_by_role("button", name="Sign in"))
            sign_in(page, person)
            expect(page.get_by_role("navigation")).to_contain_text(DESKS[person])
            account = page.evaluate(
                "fetch(`/hub/api/user?_xsrf=${window.jhdata.xsrf_token}`)"
                ".then(answer => answer.json())"
            )
            assert (account["name"], account["admin"]) == (DESKS[person], is_administrator)
            roles = {"admin", "editor"} if is_administrator else {"editor"}
            assert set(account["groups"]) == roles
            press(page.locator("#logout"))
            sign_out(page)
