"""Real proxies in front of an application, and a person who has a browser there."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from html import unescape
from typing import Protocol
from urllib.parse import urljoin

import pytest
import requests

from tests.applications import software
from tests.applications.conftest import DANA, PASSWORD
from tests.applications.software import Application, python
from tests.support.processes import Server, require
from tests.support.proxied import IDENTITY, NAVIGATION

FORGED = {
    **dict.fromkeys(IDENTITY, "forged"),
    **dict.fromkeys(("Remote_User", "remote_groups", "X_Sso_Assertion"), "forged"),
    "X-Sso_Assertion": "forged",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Uri": "/health",
    "X-Forwarded-Method": "OPTIONS",
}  # fmt: skip
NGINX = """daemon off;
master_process off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
access_log off;
client_body_temp_path {folder}/body;
proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi;
scgi_temp_path {folder}/scgi;
{site}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with Server(folder, workers=1, SSO_TRUSTED_PROXIES="1").running() as server:
        server.flask(
            "user", "create", "--email", DANA.email, "--name", "Zoë Demo", "--group", "staff",
            "--email-verified", "--password-stdin", stdin=PASSWORD,
        )  # fmt: skip
        yield server


Change = Callable[[str], str]  # of the configuration that the preset prints


def nginx(app: Application, change: Change = str) -> AbstractContextManager[None]:
    program = require("nginx", shutil.which("nginx", path="/usr/sbin"))
    site = change(app.printed("nginx")).replace("    listen ", "    listen 127.0.0.1:")
    file = app.folder / "nginx.conf"
    file.write_text(NGINX.format(folder=app.folder, site=site))
    return app.running(program, "-p", str(app.folder), "-c", str(file), path=None)


def caddy(app: Application, change: Change = str) -> AbstractContextManager[None]:
    program = require("Caddy", shutil.which("caddy"))
    site = change(app.printed("Caddyfile")).replace(
        "    route {", "    bind 127.0.0.1\n    route {"
    )
    app.environ |= dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(app.folder))
    file = app.folder / "Caddyfile"
    file.write_text("{\n    admin off\n}\n" + site)
    return app.running(program, "run", "--config", str(file), path=None)


def envoy(app: Application) -> AbstractContextManager[None]:
    site = app.printed("envoy.yaml").replace(
        'address: "::", ipv4_compat: true', "address: 127.0.0.1"
    )
    file = app.folder / "envoy.yaml"
    file.write_text(site)
    program = str(python("envoy") / "bin/envoy")
    options = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning")
    return app.running(program, "-c", str(file), *options, path=None)


def traefik(app: Application) -> AbstractContextManager[None]:
    """Its static configuration is a part of the entry point that an installation has.

    It answers 404 until it has read the dynamic one; `/health` is public then.
    """
    dynamic = app.folder / "dynamic.yaml"
    dynamic.write_text(app.printed("Traefik, dynamic configuration"))
    [entry] = [
        part["text"]
        for part in app.registered["setup"]
        if part["title"] == "Traefik, static configuration" and part["kind"] == "file"
    ]
    file = app.folder / "traefik.yml"
    file.write_text(
        f"{entry}\n    address: 127.0.0.1:{app.port}\n"
        f"providers: {{file: {{filename: {dynamic}}}}}\nglobal: {{checkNewVersion: false}}\n"
    )
    return app.running(str(software.traefik()), f"--configFile={file}", path="/health")


class Place(Protocol):
    """What a person opens."""

    url: str


@dataclass
class Person:
    """A browser that has no more than cookies, redirects and forms."""

    app: Place
    http: requests.Session = field(default_factory=requests.Session)

    def open(self, uri: str, **headers: str) -> requests.Response:
        return self.http.get(
            self.app.url + uri, headers={**NAVIGATION, **headers}, allow_redirects=False, timeout=60
        )

    def shown(self, uri: str, **headers: str) -> dict[str, str]:
        """The headers that the application gets, in lower case."""
        answer = self.open(uri, **headers)
        assert answer.status_code == 200, answer.text
        headers_there: dict[str, str] = answer.json()["headers"]
        return headers_there

    def follow(self, answer: requests.Response, *, until: str = '"headers"') -> requests.Response:
        """Go on until a page has this text; sign in, allow and sign out where a page asks."""
        for _ in range(12):
            if until in answer.text:
                return answer
            if answer.is_redirect:
                url, form = urljoin(answer.url, answer.headers["Location"]), None
            elif refresh := re.search(r'http-equiv="refresh" content="0;url=([^"]*)"', answer.text):
                url, form = urljoin(answer.url, unescape(refresh[1])), None
            elif "<form" in answer.text:
                url, form = _target(answer), self._filled(answer.text)
            else:
                break
            answer = self.http.request(
                "POST" if form else "GET",
                url,
                data=form,
                headers={**NAVIGATION, "Origin": url[: url.index("/", 8)]},
                allow_redirects=False,
                timeout=60,
            )
            assert answer.status_code < 400, answer.text
        raise AssertionError(f"it ends at {answer.url}")

    def _filled(self, page: str) -> dict[str, str]:
        inputs = [
            dict(re.findall(r'(\w+)="([^"]*)"', tag)) for tag in re.findall(r"<input[^>]*>", page)
        ]
        form = {
            i["name"]: unescape(i.get("value", "")) for i in inputs if i.get("type") == "hidden"
        }
        if 'type="password"' in page:
            return {**form, "email": DANA.email, "password": PASSWORD}
        decision = "allow" if 'value="allow"' in page else "sign_out"
        return {**form, "decision": decision}


def _target(answer: requests.Response) -> str:
    """Return where a form goes: to another server if it says so (SAML), else to its own page."""
    action = re.search(r'<form[^>]* action="(http[^"]*)"', answer.text)
    return unescape(action[1]) if action else answer.url
