"""`flask doctor --client` in front of real nginx and Caddy: with the configurations of the presets,
and with what people forget.
"""

import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.applications.proxies import Change, caddy, nginx
from tests.applications.proxies import server as server
from tests.applications.software import Application
from tests.operations.test_doctor_client import examine, named
from tests.support.processes import Server
from tests.support.proxied import IDENTITY

PROXIES = {"nginx": nginx, "caddy": caddy}


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """An application that reads headers as CGI does, where `_` and `-` are the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {n.lower().replace("_", "-"): v for n, v in self.headers.items()}
            path = self.path.partition("?")[0]
            status, body = 200, "welcome"
            if path == "/who":
                body = "; ".join(headers.get(name.lower(), "") for name in IDENTITY)
            elif path == "/email":
                body = headers.get("remote-email", "nobody")
            elif path == "/assertion":  # as if it verified the signature
                head, _, _ = headers.get("x-sso-assertion", "").partition(".")
                is_ours = b'"forged' not in base64.urlsafe_b64decode(head + "==")
                status, body = (200, headers["remote-email"]) if is_ours else (401, "")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as program:
        threading.Thread(target=program.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{program.server_port}"
        program.shutdown()


@pytest.fixture(scope="module")
def apps(
    server: Server, upstream: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Application]:
    """An application behind each proxy, for members only."""
    options = ("--option", f"upstream={upstream}", "--option", f"server={server.origin}")
    return {
        name: Application(
            tmp_path_factory.mktemp(name), server, name, *options, "--group", "staff",
            "--require-mfa", "--public-path", "/email",
        )
        for name in PROXIES
    }  # fmt: skip


def findings(
    server: Server, app: Application, page: str | None = None
) -> tuple[int, list[dict[str, Any]]]:
    more = ("--page", app.url + page) if page else ()
    return examine(server, app.registered["client_id"], *more)


def replaced(old: str, new: str) -> Change:
    def change(site: str) -> str:
        assert old in site
        return site.replace(old, new)

    return change


def without(*lines: str) -> Change:
    """Forget some lines of a configuration."""

    def change(site: str) -> str:
        for line in lines:
            assert line in site
            site = site.replace(line, "")
        return site

    return change


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_right_configuration(server: Server, apps: dict[str, Application], proxy: str) -> None:
    app = apps[proxy]
    with PROXIES[proxy](app):
        code, report = findings(server, app, "/who?page=1#top")
        assert [(one["name"], one["status"]) for one in report] == [
            ("client", "ok"), ("proxy", "ok"), ("sign-in", "ok"), ("forged headers", "ok"),
        ], report  # fmt: skip
        assert code == 0
        assert "a member of staff" in named(report, "sign-in")["seen"]
        message = named(report, "forged headers")["seen"]
        assert "shows the true Remote-User and Remote-Email" in message
        assert "not to be seen there: Remote-Name, Remote-Groups, X-Sso-Assertion" in message
        if proxy != "nginx":
            return
        _, report = findings(server, app, "/email")
        assert "shows the true Remote-Email" in named(report, "forged headers")["seen"]
        code, report = findings(server, app, "/")
        forged = named(report, "forged headers")
        assert (code, forged["status"]) == (0, "warning")
        assert "nothing can be said" in forged["seen"]


def test_without_a_page_the_application_is_not_asked(
    server: Server, apps: dict[str, Application], upstream: str
) -> None:
    app = apps["nginx"]
    with nginx(app, replaced(upstream, "http://127.0.0.1:1")):
        code, report = findings(server, app)
        assert [(one["name"], one["status"]) for one in report] == [
            ("client", "ok"), ("proxy", "ok"), ("sign-in", "ok"), ("forged headers", "skipped"),
        ], report  # fmt: skip
        assert code == 0
        assert "--page URL" in named(report, "forged headers")["seen"]
        code, report = findings(server, app, "/who")
        assert named(report, "forged headers")["status"] == "warning"


SET = "        proxy_set_header {} $sso_{};\n"
VARIABLES = dict(zip(IDENTITY, ("user", "email", "name", "groups", "assertion"), strict=True))
ALL = [SET.format(name, variable) for name, variable in VARIABLES.items()]
GROUPS, ASSERTION = ALL[3:]
URI = "        proxy_set_header X-Forwarded-Uri $request_uri;\n"
UNDERSCORES = replaced("server {\n", "server {\n    underscores_in_headers on;\n")
NO_QUESTION = without("        auth_request /.sso-check;\n")
CADDY = [f"        request_header -{name}*\n" for name in ("Remote-", "Remote_")]


def rarely(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.exhaustive)


def unprotected(site: str) -> str:
    """Without the block that asks the server."""
    return re.sub(r" *forward_auth .*\{\n( .*\n)*? *\}\n", "", site)


@pytest.mark.parametrize(
    ("proxy", "change", "page", "name", "status", "text"),
    [
        ("nginx", without(*ALL), "/who", "forged headers", "wrong", ", ".join(IDENTITY)),
        rarely("nginx", without(GROUPS), "/who", "forged headers", "wrong", "arrive: Remote-Gr"),
        rarely("nginx", without(GROUPS), "/email", "forged headers", "ok", "not to be seen there"),
        ("nginx", without(ASSERTION), "/assertion", "forged headers", "warning", "200, then 401"),
        ("nginx", UNDERSCORES, "/who", "forged headers", "wrong", "with underscores"),
        ("nginx", NO_QUESTION, None, "proxy", "wrong", "a stranger gets in (200)"),
        rarely("nginx", without("        error_page 401 = @sso;\n"), None, "proxy", "wrong", "401"),
        rarely("nginx", without(URI), None, "proxy", "wrong", "no answer that it can use (500)"),
        ("nginx", replaced("-Uri $", "-Uri $http_x_forwarded_uri$"), None, "proxy", "wrong",
         "clients can forge X-Forwarded-Uri"),
        ("nginx", replaced("-Uri $request_uri", "-Uri $uri"), None, "proxy", "wrong",
         "asks about another page"),
        ("nginx", replaced("^~ /.sso/", "^~ /.else/"), None, "sign-in", "wrong",
         "/.sso/callback answers"),
        ("caddy", without(*CADDY), "/who", "forged headers", "wrong", "with underscores"),
        ("caddy", unprotected, None, "proxy", "wrong", "a stranger gets in (200)"),
    ],
)  # fmt: skip
def test_a_wrong_configuration(
    server: Server,
    apps: dict[str, Application],
    proxy: str,
    change: Change,
    page: str | None,
    name: str,
    status: str,
    text: str,
) -> None:
    app = apps[proxy]
    with PROXIES[proxy](app, change):
        code, report = findings(server, app, page)
    finding = named(report, name)
    assert (finding["status"], code) == (status, int(status == "wrong")), report
    assert text in finding["seen"], report


def test_pages_of_others(server: Server, apps: dict[str, Application]) -> None:
    app = apps["nginx"]
    create = ("client", "create", "--name", "Books", "--json", "--redirect-uri")
    books = json.loads(server.flask(*create, "https://books.example/callback"))["client_id"]
    for client_id, page in (
        (app.registered["client_id"], "https://evil.example/"),
        (app.registered["client_id"], "http://127.0.0.1:99999/"),
        (app.registered["client_id"], "/who"),
        (books, "https://books.example/"),
    ):
        done = server.try_flask("doctor", "--client", client_id, "--page", page)
        assert done.returncode == 1
        assert "is not below a URL of this client" in done.stderr
    done = server.try_flask("doctor", "--page", "https://books.example/")
    assert (done.returncode, "--page needs --client" in done.stderr) == (2, True)
