"""Debian's Radicale, Fossil and Mercurial, which believe the name in a header, behind real proxies:
with the configurations that docs/how-to/forward-auth.md has.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pytest
import requests

from tests.applications.conftest import DANA, SAM
from tests.applications.proxies import Person, caddy, nginx
from tests.applications.proxies import server as server
from tests.applications.software import Application, run
from tests.applications.test_apis import running
from tests.clients.test_readme import block
from tests.support.processes import Server, free_port, require
from tests.support.proxied import IDENTITY, NAVIGATION

PAGE = "docs/how-to/forward-auth.md"
RADICALE = "# Radicale: instead of reverse_proxy in the Caddyfile of the preset"
FOSSIL = "# Fossil: instead of proxy_pass and what follows it in the configuration of the preset"
FOSSIL_USERS = (
    'fossil user new dana@example.com "Dana Demo" "$(openssl rand -hex 32)" -R /srv/notes.fossil'
)
MERCURIAL = '"""notes.py: a Mercurial repository for the people that its hgrc lists."""'
NAMES = [*IDENTITY, "X-Remote-User"]
SPELLINGS = [*NAMES, *(name.replace("-", "_") for name in NAMES), "X-Remote_User", "X_Remote-User"]
PRINCIPAL = '<propfind xmlns="DAV:"><prop><current-user-principal/></prop></propfind>'


@dataclass
class Wiki:
    """An application and its proxy. `home` is for those who are in, `public` for everybody.

    `name`: returns the person for whom an answer of the application is. `start`: a page, and a text
    that it has.
    """

    app: Application
    home: str
    public: str
    name: Callable[[requests.Response], str | None]
    start: tuple[str, str]
    method: str = "GET"

    def who(self, person: Person, path: str, forged: str | None = None) -> str | None:
        """Return for whom the application answers; `None`: for nobody."""
        return self.name(self.ask(person, path, forged))

    def ask(self, person: Person, path: str, forged: str | None = None) -> requests.Response:
        kind = NAVIGATION if self.method == "GET" else {"Depth": "0"}
        return person.http.request(
            self.method,
            self.app.url + path,
            data=PRINCIPAL if self.method != "GET" else None,
            headers={**kind, **(dict.fromkeys(SPELLINGS, forged) if forged else {})},
            allow_redirects=False,
            timeout=60,
        )


def registered(
    folder: Path, server: Server, preset: str, upstream: str, public: str
) -> Application:
    folder.mkdir()
    options = ("--option", f"upstream={upstream}", "--option", f"server={server.origin}")
    return Application(
        folder, server, preset, *options, "--first-party", "--group", "staff",
        "--public-path", public,
    )  # fmt: skip


def system(*command: str, **variables: str) -> str:
    """Run a program of Debian, without this project's Python in its path."""
    return run(*command, cwd=None, PATH="/usr/bin:/bin", **variables)


@contextmanager
def radicale(folder: Path, server: Server) -> Iterator[Wiki]:
    program = require("Radicale", shutil.which("radicale", path="/usr/bin"))
    port = free_port()
    app = registered(folder, server, "caddy", f"http://127.0.0.1:{port}", f"/{SAM.email}/")
    own = f"\n[server]\nhosts = 127.0.0.1:{port}\n[storage]\nfilesystem_folder = {folder}/data\n"
    (folder / "config").write_text(block("# /etc/radicale/config", PAGE) + own)
    example = block(RADICALE, PAGE)
    assert "http://127.0.0.1:5232" in example
    lines = example.replace("http://127.0.0.1:5232", f"http://127.0.0.1:{port}")

    def change(site: str) -> str:
        return re.sub(r"^ *reverse_proxy .*$", lines, site, flags=re.MULTILINE)

    command: list[Path | str] = [program, "--config", folder / "config"]
    with running(command, folder, port), caddy(app, change):
        yield Wiki(app, "/", f"/{SAM.email}/", principal, ("/.web/", "Radicale"), "PROPFIND")


def principal(answer: requests.Response) -> str | None:
    """The owner's path (RFC 5397)."""
    path = re.search(r"<current-user-principal><href>/([^/<]+)/<", answer.text)
    return unquote(path[1]) if path else None


@contextmanager
def fossil(folder: Path, server: Server) -> Iterator[Wiki]:
    program = require("Fossil", shutil.which("fossil"))
    port = free_port()
    app = registered(folder, server, "nginx", "http://127.0.0.1:9", "/login")
    repository = str(folder / "notes.fossil")
    variables = {"FOSSIL_HOME": str(folder), "USER": "root"}
    system(program, "init", "--admin-user", "admin", repository, **variables)
    commands = block(FOSSIL_USERS, PAGE)
    for person in (DANA, SAM):
        mine = commands.replace("dana@example.com", person.email)
        mine = mine.replace("/srv/notes.fossil", repository)
        system("sh", "-euc", mine, **variables)
    example = block(FOSSIL, PAGE)
    assert "127.0.0.1:8081" in example
    lines = example.replace("127.0.0.1:8081", f"127.0.0.1:{port}")

    def change(site: str) -> str:
        before, _, rest = site.rpartition("        proxy_pass http://127.0.0.1:9;\n")
        return before + lines + rest[rest.index("    }\n") :]

    options = ("--scgi", "--localhost", "--port", str(port), "--baseurl", app.url)
    command: list[Path | str] = [program, "server", *options, repository]
    with running(command, folder, port, **variables), nginx(app, change):
        yield Wiki(app, "/timeline", "/login", link, ("/timeline", "/logout"))


def link(answer: requests.Response) -> str | None:
    name = re.search(r"<a href='/login'>([^<]+@[^<]+)</a>", answer.text)
    return name[1] if name else None


@contextmanager
def mercurial(folder: Path, server: Server) -> Iterator[Wiki]:
    program = require("Mercurial", shutil.which("hg", path="/usr/bin"))
    port = free_port()
    app = registered(folder, server, "nginx", f"http://127.0.0.1:{port}", "/log")
    repository = folder / "notes"
    system(program, "init", str(repository))
    (repository / ".hg/hgrc").write_text(block("[web]", PAGE))
    (folder / "notes.py").write_text(block(MERCURIAL, PAGE))
    command: list[Path | str] = ["/usr/bin/python3", folder / "notes.py"]
    with running(command, folder, port, REPOSITORY=str(repository)), nginx(app):
        yield Wiki(app, "/", "/log", reader, ("/", "mercurial"))


def reader(answer: requests.Response) -> str | None:
    """It shows no name: one person alone may read."""
    return DANA.email if answer.status_code == 200 else None


@pytest.mark.parametrize(
    "application",
    [
        radicale,
        pytest.param(fossil, marks=pytest.mark.exhaustive),
        pytest.param(mercurial, marks=pytest.mark.exhaustive),
    ],
)
def test_the_name_in_a_header(
    tmp_path: Path,
    server: Server,
    application: Callable[[Path, Server], AbstractContextManager[Wiki]],
) -> None:
    with application(tmp_path / "wiki", server) as wiki:
        person, stranger = Person(wiki.app), Person(wiki.app)
        for path in (wiki.home, wiki.public):
            for name in (DANA.email, SAM.email):
                assert wiki.who(stranger, path, forged=name) is None
        answer = wiki.ask(stranger, wiki.home, forged=DANA.email)
        assert answer.status_code == (303 if wiki.method == "GET" else 401)
        page, text = wiki.start
        person.follow(person.open(page), until=text)
        assert wiki.who(person, wiki.home) == DANA.email
        assert wiki.who(person, wiki.home, forged=SAM.email) == DANA.email
        server.flask("user", "disable", DANA.email)
        assert wiki.ask(person, wiki.home).status_code == answer.status_code
        server.flask("user", "enable", DANA.email)
