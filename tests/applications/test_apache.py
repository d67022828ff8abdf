"""Debian's Apache with mod_auth_openidc, in front of an application that trusts its headers."""

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from tests.applications.conftest import (
    ADMINS,
    DANA,
    DESKS,
    SAM,
    Connect,
    give_roles_and_desk,
    press,
    sign_in,
)
from tests.support.processes import Server, free_port, require

MODULES = Path("/usr/lib/apache2/modules")
NAMES = ("mpm_event", "authn_core", "authz_core", "authz_user", "env", "headers", "proxy",
         "proxy_http", "auth_openidc")  # fmt: skip
# What Debian's own apache2.conf says.
OWN = """ServerRoot {folder}
PidFile {folder}/pid
Mutex file:{folder}
Listen 127.0.0.1:{port}
ErrorLog /dev/stderr
User www-data
Group www-data
"""


@pytest.fixture
def behind() -> Iterator[str]:
    """An application that shows the headers it gets."""

    @Request.application
    def show(request: Request) -> Response:
        names = ("User", "Email", "Name", "Groups", "Roles", "Desk")
        return Response("\n".join(f"{n}: {request.headers.get('X-Remote-' + n)}" for n in names))

    port = free_port()
    server = make_server("127.0.0.1", port, show, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{port}"
    server.shutdown()
    thread.join(10)


def test_apache(connect: Connect, page: Page, tmp_path: Path, behind: str, server: Server) -> None:
    apache = require("Apache", shutil.which("apache2", path="/usr/sbin"))
    require("mod_auth_openidc", shutil.which("mod_auth_openidc.so", mode=0, path=MODULES))
    options = (f"allowed_groups={ADMINS}", f"upstream={behind}")
    given = [word for option in options for word in ("--option", option)]
    app = connect("apache", "--alternative", "proxy", *given)

    def here(title: str) -> str:
        return app.printed(title).replace("/etc/apache2", str(tmp_path))

    *_, passphrase = here("Module and passphrase").splitlines()
    app.shell(passphrase.replace("sudo ", ""))
    (tmp_path / "auth_openidc.conf").write_text(here("auth_openidc.conf"))
    modules = "".join(f"LoadModule {n}_module {MODULES}/mod_{n}.so\n" for n in NAMES)
    own = OWN.format(folder=tmp_path, port=app.port)
    site = here("Virtual host in front of an application")
    (tmp_path / "apache2.conf").write_text(modules + own + site)
    app.environ["APACHE_RUN_DIR"] = str(tmp_path)
    with app.running(apache, "-D", "FOREGROUND", "-f", str(tmp_path / "apache2.conf")):
        page.goto(app.url)
        sign_in(page, DANA)
        expect(page).to_have_url(f"{app.url}/")
        assert page.locator("body").inner_text().split("\n") == [
            f"User: {DANA.email}",
            f"Email: {DANA.email}",
            f"Name: {DANA.name}",
            f"Groups: {ADMINS},staff",
            "Roles: None",
            "Desk: None",
        ]
        page.goto(app.printed("Sign-out link").strip())
        expect(page.get_by_label("Password", exact=True)).to_be_visible()
        sign_in(page, DANA)
        page.goto(f"{server.base_url}/sign-out")
        press(page.get_by_role("button", name="Sign out"))
        page.goto(app.url)
        expect(page).to_have_url(f"{app.url}/")  # its session lives on until it hears of that
        server.flask("worker", "--once")
        page.goto(app.url)
        sign_in(page, SAM)
        expect(page.get_by_role("heading")).to_have_text("Forbidden")

    # The same with roles and a claim of its own.
    give_roles_and_desk(app, server)
    protected = (tmp_path / "auth_openidc.conf").read_text()
    requirement = re.compile(r"Require claim .*")
    assert len(requirement.findall(protected)) == 1
    for role, may_enter in (("admin", False), ("editor", True)):
        text = requirement.sub(f"Require claim roles:{role}", protected)
        (tmp_path / "auth_openidc.conf").write_text(text)
        mark = "    RequestHeader set X-Remote-Name"
        assert mark in site
        headers = "".join(
            f'    RequestHeader set X-Remote-{name.title()} "expr=%{{env:OIDC_CLAIM_{name}}}"\n'
            for name in ("roles", "desk")
        )
        configuration = modules + own + site.replace(mark, headers + mark)
        (tmp_path / "apache2.conf").write_text(configuration)
        with app.running(apache, "-D", "FOREGROUND", "-f", str(tmp_path / "apache2.conf")):
            page.goto(app.url)
            if may_enter:
                *_, roles, desk = page.locator("body").inner_text().split("\n")
                assert (roles, desk) == ("Roles: editor", f"Desk: {DESKS[SAM]}")
            else:
                expect(page.get_by_role("heading")).to_have_text("Forbidden")
