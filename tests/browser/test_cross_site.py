"""A page of another site in a real browser: what it sends signs nobody out, and it holds no page.

Sites are told apart by host: `localhost` is another one than `127.0.0.1`.
"""

import html
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page, expect
from werkzeug.serving import make_server

from tests.browser.conftest import EMAIL, PASSWORD, Site, press
from tests.support.each import each
from tests.support.processes import free_port

BYE = "https://books.example/bye"


@pytest.fixture
def page(chrome: Browser) -> Iterator[Page]:
    context = chrome.new_context()
    yield context.new_page()
    context.close()


class Evil:
    """A site whose one page is what a test wants."""

    def __init__(self, origin: str) -> None:
        self.origin, self.body = origin, ""


@pytest.fixture
def evil() -> Iterator[Evil]:
    port = free_port()
    site = Evil(f"http://localhost:{port}")
    app = Flask(__name__)
    app.add_url_rule("/", "page", lambda: f"<!doctype html><title>evil</title>{site.body}")
    app.add_url_rule("/callback", "callback", lambda: "<title>callback</title>")
    served = make_server("127.0.0.1", port, app, threaded=True)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield site
    served.shutdown()
    served.server_close()
    thread.join(10)


@pytest.fixture
def signed_in(page: Page, site: Site) -> Page:
    page.goto(f"{site.server.base_url}/sign-in")
    page.get_by_label("Email").fill(EMAIL)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    press(page.get_by_role("button", name="Sign in"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Your account")
    return page


def assert_signed_in(page: Page, site: Site) -> None:
    page.goto(f"{site.server.base_url}/account")
    expect(page.get_by_role("heading", level=1)).to_have_text("Your account")


def cookies(page: Page, site: Site) -> dict[str, str]:
    found = page.context.cookies(site.server.base_url)
    return {one["name"]: one["value"] for one in found}


POSTED = ("sign-in", "sign-out", "consent", "second-factor", "oauth2/end-session", "account",
          "oauth2/authorize", "forgotten-password", "new-password", "sign-in/passkey")  # fmt: skip


@each("path", POSTED)
def test_a_form_that_posts_itself(signed_in: Page, site: Site, evil: Evil, path: str) -> None:
    before = cookies(signed_in, site)
    evil.body = f"""
        <form method="post" action="{site.server.base_url}/{path}">
        <input name="decision" value="sign_out"><input name="email" value="{EMAIL}">
        <input name="password" value="x"><input name="action" value="end_all_sessions">
        <button>post</button></form>"""
    signed_in.goto(evil.origin)
    press(signed_in.get_by_role("button"))
    assert signed_in.url.startswith(site.server.origin)
    assert cookies(signed_in, site) == before
    assert_signed_in(signed_in, site)


def test_what_a_page_embeds(signed_in: Page, site: Site, evil: Evil) -> None:
    before = cookies(signed_in, site)
    urls = [
        f"{site.server.base_url}/{path}"
        for path in ("sign-in", "sign-out", "oauth2/end-session", "forgotten-password", "sign-up")
    ]
    parts = [f'<img src="{url}"><iframe src="{url}"></iframe>' for url in urls]
    parts += [f'<object data="{url}"></object><script src="{url}"></script>' for url in urls]
    asked = ", ".join(
        f'fetch("{url}", {{mode: "no-cors", credentials: "include", method: "{method}"}})'
        for url in urls
        for method in ("GET", "POST")
    )
    evil.body = f"""{"".join(parts)}
        <script>Promise.allSettled([{asked}]).then(() => document.title = "done")</script>"""
    signed_in.goto(evil.origin)
    signed_in.wait_for_load_state("networkidle")
    expect(signed_in).to_have_title("done")
    assert cookies(signed_in, site) == before
    assert_signed_in(signed_in, site)


def test_a_frame_that_posts(signed_in: Page, site: Site, evil: Evil) -> None:
    before = cookies(signed_in, site)
    evil.body = f"""<iframe name="frame"></iframe>
        <form method="post" action="{site.server.base_url}/oauth2/end-session" target="frame">
        <input name="decision" value="sign_out"><button>post</button></form>"""
    signed_in.goto(evil.origin)
    with signed_in.expect_request_finished():
        signed_in.get_by_role("button").click()
    signed_in.wait_for_load_state("networkidle")
    assert cookies(signed_in, site) == before
    assert_signed_in(signed_in, site)


def test_a_logout_form_of_a_client(signed_in: Page, site: Site, evil: Evil, tmp_path: Path) -> None:
    """It posts from another site; every parameter arrives, by way of the question."""
    bye = f"{evil.origin}/callback"
    client = site.server.register(
        "Books", f"{evil.origin}/callback", "--post-logout-redirect-uri", bye
    )
    state = "a b&c=d#é'\""
    fields = {
        "client_id": client["client_id"],
        "post_logout_redirect_uri": bye,
        "state": state,
    }
    inputs = "".join(
        f'<input name="{name}" value="{html.escape(value)}">' for name, value in fields.items()
    )
    evil.body = f"""<meta charset="utf-8"><form method="post"
        action="{site.server.base_url}/oauth2/end-session">{inputs}<button>out</button></form>"""
    signed_in.goto(evil.origin)
    press(signed_in.get_by_role("button"))
    expect(signed_in.get_by_role("heading", level=1)).to_have_text("Sign out?")
    press(signed_in.get_by_role("button", name="Sign out"))
    assert signed_in.url == f"{bye}?{urlencode({'state': state}).replace('+', '%20')}"
    signed_in.goto(f"{site.server.base_url}/account")
    expect(signed_in.get_by_label("Password", exact=True)).to_be_visible()


def test_an_unregistered_address(signed_in: Page, site: Site, evil: Evil) -> None:
    client = site.server.register("Books", f"{evil.origin}/callback")
    query = urlencode(
        {"client_id": client["client_id"], "post_logout_redirect_uri": f"{BYE}?where=here"}
    )
    signed_in.goto(f"{site.server.base_url}/oauth2/end-session?{query}")
    expect(signed_in.get_by_role("alert")).to_contain_text("not registered")
    expect(signed_in.locator("dd", has_text=f"Received: {BYE}?where=here")).to_be_visible()
    # Nothing is wider than a telephone's screen.
    signed_in.set_viewport_size({"width": 320, "height": 640})
    assert signed_in.evaluate("document.documentElement.scrollWidth") <= 320
    press(signed_in.get_by_role("link", name="Back to Books"))
    assert signed_in.url == f"{evil.origin}/"
    assert_signed_in(signed_in, site)


def test_a_popup(signed_in: Page, site: Site, evil: Evil) -> None:
    """The opener loses hold of our pages; where none is shown, the application's popup works."""
    client = site.server.register("Popup", f"{evil.origin}/callback", "--first-party")
    values = {
        "response_type": "code",
        "client_id": client["client_id"],
        "redirect_uri": f"{evil.origin}/callback",
        "state": "s",
    }
    url = f"{site.server.base_url}/oauth2/authorize?{urlencode(values)}"
    evil.body = "<script>let popup; function go(url) { popup = open(url, '_blank') }</script>"
    signed_in.goto(evil.origin)
    with signed_in.expect_popup() as opened:
        signed_in.evaluate("url => go(url)", url)
    opened.value.wait_for_url(f"{evil.origin}/callback?code=**")
    assert opened.value.evaluate("window.opener !== null")
    assert signed_in.evaluate("!popup.closed")
    opened.value.close()

    with signed_in.expect_popup() as opened:
        signed_in.evaluate("url => go(url)", f"{site.server.base_url}/account")
    expect(opened.value.get_by_role("heading", level=1)).to_have_text("Your account")
    assert opened.value.evaluate("window.opener") is None
    assert signed_in.evaluate("popup.closed")
