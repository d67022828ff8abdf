"""Chromium, through nginx with the preset's configuration, at an application without a sign-in."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.applications.conftest import DANA, PASSWORD
from tests.applications.proxies import nginx
from tests.applications.proxies import server as server
from tests.applications.software import Application
from tests.browser.conftest import press
from tests.support.processes import Server

PAGE = """<!doctype html><title>Wiki</title><h1>{path}</h1><p id="user">{user}</p>
<form method="post" action="/save"><input name="text"><button>Save</button></form>
<a href="/.sso/sign-out">Leave</a>"""


@dataclass
class Wiki:
    """An application behind nginx, and the paths to which something was posted."""

    url: str = ""
    saved: list[str] = field(default_factory=list)

    def program(self) -> type[BaseHTTPRequestHandler]:
        wiki = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = PAGE.format(path=self.path, user=self.headers["Remote-Email"]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                wiki.saved.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.do_GET()

            def log_message(self, *_: object) -> None: ...

        return Handler


@pytest.fixture(scope="module")
def wiki(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wiki]:
    wiki, folder = Wiki(), tmp_path_factory.mktemp("wiki")
    with ThreadingHTTPServer(("127.0.0.1", 0), wiki.program()) as upstream:
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        options = ("--option", f"upstream=http://127.0.0.1:{upstream.server_port}", "--option")
        app = Application(folder, server, "nginx", *options, f"server={server.origin}")
        wiki.url = app.url
        with nginx(app):
            yield wiki
        upstream.shutdown()


@pytest.fixture
def context(chrome: Browser) -> Iterator[BrowserContext]:
    context = chrome.new_context()
    context.set_default_timeout(30_000)
    yield context
    context.close()


def sign_in(page: Page) -> None:
    page.get_by_label("Email").fill(DANA.email)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    press(page.get_by_role("button", name="Sign in"))
    allow = page.get_by_role("button", name="Allow")
    if allow.is_visible():
        press(allow)


def expect_to_be_in(page: Page, wiki: Wiki, uri: str) -> None:
    expect(page).to_have_url(wiki.url + uri)
    expect(page.get_by_role("heading")).to_have_text(uri)
    expect(page.locator("#user")).to_have_text(DANA.email)


def expect_to_be_asked(page: Page, server: Server) -> None:
    expect(page.get_by_label("Password", exact=True)).to_be_visible()
    assert page.url.startswith(server.base_url)


def test_many_tabs(context: BrowserContext, wiki: Wiki, server: Server) -> None:
    """Each returns to its own page, whichever signs in, and however often."""
    uris = ["/one?page=1", "/two", "/three"]
    tabs = [context.new_page() for _ in uris]
    for tab, uri in zip(tabs, uris, strict=True):
        tab.goto(wiki.url + uri)
        expect_to_be_asked(tab, server)
    first, second, third = tabs
    sign_in(second)
    expect_to_be_in(second, wiki, "/two")
    sign_in(first)
    expect_to_be_in(first, wiki, "/one?page=1")
    third.reload()
    expect_to_be_in(third, wiki, "/three")


def test_a_form_after_the_session_has_ended(
    context: BrowserContext, wiki: Wiki, server: Server
) -> None:
    """The person returns to the page with the form, and nothing is sent twice or by itself."""
    page, other = context.new_page(), context.new_page()
    page.goto(f"{wiki.url}/edit?id=7")
    sign_in(page)
    expect_to_be_in(page, wiki, "/edit?id=7")
    page.locator("input[name=text]").fill("before")
    press(page.get_by_role("button", name="Save"))
    assert wiki.saved == ["text=before"]
    page.go_back()

    other.goto(f"{server.base_url}/sign-out")
    press(other.get_by_role("button", name="Sign out"))
    page.locator("input[name=text]").fill("after")
    press(page.get_by_role("button", name="Save"))
    expect_to_be_asked(page, server)
    sign_in(page)
    expect_to_be_in(page, wiki, "/edit?id=7")
    assert wiki.saved == ["text=before"]
    page.locator("input[name=text]").fill("again")
    press(page.get_by_role("button", name="Save"))
    assert wiki.saved == ["text=before", "text=again"]


def test_sign_out(context: BrowserContext, wiki: Wiki, server: Server) -> None:
    page, other = context.new_page(), context.new_page()
    page.goto(f"{wiki.url}/page")
    sign_in(page)
    other.goto(f"{wiki.url}/other")
    expect_to_be_in(other, wiki, "/other")
    press(page.get_by_role("link", name="Leave"))
    press(page.get_by_role("button", name="Sign out"))
    expect_to_be_asked(page, server)  # back at the application, which sends them to sign in
    status = other.evaluate("() => fetch('/feed').then(answer => answer.status)")
    assert status == 401
    other.reload()
    expect_to_be_asked(other, server)
