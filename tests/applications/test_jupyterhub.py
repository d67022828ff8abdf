"""JupyterHub with oauthenticator."""

from playwright.sync_api import Page, expect

from tests.applications.conftest import ADMINS, DANA, SAM, Connect, press, sign_in, sign_out
from tests.applications.software import node, python
from tests.support.processes import free_port

OWN = """
c.JupyterHub.bind_url = "{url}"
c.JupyterHub.hub_port = {hub}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.JupyterHub.spawner_class = "simple"
c.Authenticator.auto_login = False
"""


def test_jupyterhub(connect: Connect, page: Page) -> None:
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
