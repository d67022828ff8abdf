"""Applications that verify the assertion of forward auth, as docs/how-to/verify-assertions.md has
them: behind nginx with what the server sends, and directly with what anybody might send.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Flask

from sso import context, create_app
from tests.applications.conftest import DANA, SAM
from tests.applications.proxies import FORGED, Person, nginx
from tests.applications.proxies import server as server
from tests.applications.software import Application, go, node, node_program, python
from tests.applications.test_apis import altered, running, unsigned
from tests.clients.test_readme import block
from tests.support.actors import claims_of, header_of
from tests.support.processes import Server, free_port, wait_for
from tests.support.proofs import LEFT_OUT, make_key, sign
from tests.support.proxied import NAVIGATION

PAGE = "docs/how-to/verify-assertions.md"
TYPE = "sso-assertion+jwt"
FLASK = '"""wiki_flask.py: an application in Flask that verifies the assertion of each request."""'
EXPRESS = "// wiki.mjs: an application in Express that verifies the assertion of each request."
GO = "// An application in Go that verifies the assertion of each request."
JUPYTERHUB = (
    '"""jupyterhub_config.py: JupyterHub takes the user from the assertion of forward auth."""'
)
OWN = """
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_port = {hub}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.JupyterHub.spawner_class = "simple"
"""


def _flask(folder: Path) -> list[Path | str]:
    (folder / "wiki_flask.py").write_text(block(FLASK, PAGE))
    return [python("authlib") / "bin/python", folder / "wiki_flask.py"]


def _express(folder: Path) -> list[Path | str]:
    (folder / "node_modules").symlink_to(node("express") / "node_modules")
    (folder / "wiki.mjs").write_text(block(EXPRESS, PAGE))
    return [node_program(), folder / "wiki.mjs"]


def _go(folder: Path) -> list[Path | str]:
    (folder / "wiki.go").write_text(block(GO, PAGE))
    return [go(folder / "wiki.go")]


PROGRAMS: dict[str, Callable[[Path], list[Path | str]]] = {
    "Flask": _flask,
    "Express": _express,
    "Go": _go,
}


@dataclass
class Wiki:
    """An application behind nginx, and where it listens itself. `issuer`: the server, here."""

    app: Application
    direct: str
    server: Server
    issuer: Flask

    def ask(self, assertion: str | None) -> requests.Response:
        """Ask it as anybody does who gets past the proxy."""
        headers = dict(FORGED) if assertion is None else {"X-Sso-Assertion": assertion}
        if assertion is None:
            del headers["X-Sso-Assertion"]
        return requests.get(self.direct, headers=headers, timeout=60)

    def assertion_of(self, person: Person) -> str:
        url = f"{self.server.base_url}/forward-auth/{self.app.registered['client_id']}"
        place = {
            "X-Forwarded-Method": "GET",
            "X-Forwarded-Proto": "http",
            "X-Forwarded-Host": self.app.url.removeprefix("http://"),
            "X-Forwarded-Uri": "/",
        }
        answer = person.http.get(url, headers={**NAVIGATION, **place}, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.headers["X-Sso-Assertion"]

    def signed(self, typ: str = TYPE, **claims: Any) -> str:
        """An assertion with other claims, signed with the server's own key."""
        claims = {**claims_of(self.good), **claims}
        kept = {name: value for name, value in claims.items() if value is not LEFT_OUT}
        with self.issuer.app_context():
            return context.key_ring().sign(kept, "ES256", typ)

    @property
    def good(self) -> str:
        now = int(time.time())
        claims = {
            "sub": "u1", "email": DANA.email, "email_verified": True, "groups": ["staff"],
            "iss": self.server.base_url, "aud": self.app.url, "iat": now, "exp": now + 60,
        }  # fmt: skip
        with self.issuer.app_context():
            return context.key_ring().sign(claims, "ES256", TYPE)

    def of_another_key(self) -> str:
        """Under the name of a key that the server has."""
        return sign(header_of(self.good), claims_of(self.good), make_key())


@contextmanager
def behind_nginx(
    folder: Path, server: Server, command: Callable[[Path], list[Path | str]]
) -> Iterator[Wiki]:
    port, own = free_port(), folder / "program"
    own.mkdir()
    options = ("--option", f"upstream=http://127.0.0.1:{port}", "--option")
    app = Application(folder, server, "nginx", *options, f"server={server.origin}", "--first-party")
    environ = {"ISSUER": server.base_url, "AUDIENCE": app.url}
    settings = {k: v for k, v in server.environ.items() if k.startswith("SSO_")}
    with running(command(own), own, port, **environ), nginx(app):
        direct = f"http://127.0.0.1:{port}/"
        yield Wiki(app, direct, server, create_app(settings, server.folder))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.exhaustive) if name == "Express" else name
        for name in PROGRAMS
    ],
)
def wiki(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Wiki]:
    folder = tmp_path_factory.mktemp("wiki")
    with behind_nginx(folder, server, PROGRAMS[request.param]) as wiki:
        yield wiki


REFUSED: dict[str, Callable[[Wiki], str | None]] = {
    "none, and forged names": lambda _: None,
    "empty": lambda _: "",
    "no JWT": lambda _: "forged",
    "dots": lambda _: "..",
    "another application": lambda wiki: wiki.signed(aud="https://other.example"),
    "longer audience": lambda wiki: wiki.signed(aud=f"{wiki.app.url}/"),
    "without aud": lambda wiki: wiki.signed(aud=LEFT_OUT),
    "expired": lambda wiki: wiki.signed(exp=int(time.time()) - 6),
    "without exp": lambda wiki: wiki.signed(exp=LEFT_OUT),
    "another issuer": lambda wiki: wiki.signed(iss="https://other.example"),
    "longer issuer": lambda wiki: wiki.signed(iss=f"{wiki.server.base_url}/"),
    "access token": lambda wiki: wiki.signed(typ="at+jwt"),
    "identity token": lambda wiki: wiki.signed(typ="JWT"),
    "another key": lambda wiki: wiki.of_another_key(),
    "altered": lambda wiki: altered(wiki.good),
    "unsigned": lambda wiki: unsigned(wiki.good),
}


def test_the_person_arrives_through_the_proxy(wiki: Wiki) -> None:
    person = Person(wiki.app)
    answer = person.follow(person.open("/"), until=DANA.email)
    user = answer.json()
    assert user["email"] == DANA.email
    assert user["groups"] == ["staff"]
    forged = {**FORGED, "X-Sso-Assertion": wiki.signed(sub="somebody else")}
    assert person.open("/", **forged).json() == user
    assert Person(wiki.app).open("/", **forged).status_code == 303
    claims = claims_of(wiki.assertion_of(person))
    assert (claims["sub"], claims["exp"] - claims["iat"]) == (user["user"], 60)


def test_a_good_assertion_is_enough(wiki: Wiki) -> None:
    answer = wiki.ask(wiki.good)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"user": "u1", "email": DANA.email, "groups": ["staff"]}


@pytest.mark.parametrize("what", REFUSED)
def test_anything_else_is_refused(wiki: Wiki, what: str) -> None:
    answer = wiki.ask(REFUSED[what](wiki))
    assert answer.status_code == 401, (what, answer.text)


@pytest.mark.parametrize("is_verified", [False, LEFT_OUT], ids=["false", "absent"])
def test_an_email_address_that_nobody_has_verified(wiki: Wiki, is_verified: Any) -> None:
    answer = wiki.ask(wiki.signed(email_verified=is_verified))
    assert answer.status_code == 200
    assert not answer.json()["email"]


def test_jupyterhub(tmp_path: Path, server: Server) -> None:
    def command(folder: Path) -> list[Path | str]:
        own = OWN.format(port="PORT", hub=free_port(), proxy=free_port())
        own = own.replace(":PORT", ':" + os.environ["PORT"] + "')
        (folder / "jupyterhub_config.py").write_text(block(JUPYTERHUB, PAGE) + own)
        hub, proxy = python("jupyterhub"), node("jupyterhub")
        start = folder / "start"
        start.write_text(
            f"PATH={hub}/bin:{proxy}/node_modules/.bin:{node_program().parent}:$PATH\n"
            f"exec jupyterhub -f {folder}/jupyterhub_config.py\n"
        )
        return ["/bin/sh", start]

    with behind_nginx(tmp_path, server, command) as wiki:
        wait_for(lambda: _open_hub(wiki, "", path="hub/health").ok, "the hub", pause=0.3)
        person, home = Person(wiki.app), "/hub/home"
        assert DANA.email in person.follow(person.open(home), until="jhdata").text
        forged = {**FORGED, "X-Sso-Assertion": wiki.signed(email=SAM.email)}
        page = person.http.get(wiki.app.url + home, headers={**NAVIGATION, **forged}, timeout=60)
        assert (DANA.email in page.text, SAM.email in page.text) == (True, False)
        for what, make in REFUSED.items():
            answer = _open_hub(wiki, make(wiki))
            assert answer.status_code == 401, (what, answer.text)
        assert _open_hub(wiki, wiki.signed(email_verified=False)).status_code == 401
        # The hub's own cookie does not outlast the person's sign-in.
        browser = requests.Session()
        assert DANA.email in _open_hub(wiki, wiki.good, browser).text
        time.sleep(1.1)
        page = _open_hub(wiki, wiki.signed(email=SAM.email), browser)
        assert (DANA.email in page.text, SAM.email in page.text) == (False, True)


def _open_hub(
    wiki: Wiki,
    assertion: str | None,
    browser: requests.Session | None = None,
    path: str = "hub/home",
) -> requests.Response:
    headers = {**NAVIGATION, **FORGED, "X-Sso-Assertion": assertion or ""}
    for name in [name for name in headers if name.startswith("X-Forwarded")]:
        del headers[name]
    browser = browser or requests.Session()
    return browser.get(wiki.direct + path, headers=headers, timeout=60)
