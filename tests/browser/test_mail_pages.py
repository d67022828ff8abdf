"""The pages around mails in a real browser, from making an account to a forgotten password.

axe looks at each of them on the way.
"""

import threading
from collections.abc import Callable, Iterator

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page
from werkzeug.serving import make_server

from tests.browser.conftest import press
from tests.browser.test_accessibility import check
from tests.browser.torn import torn
from tests.mailbox import Mailbox, MailServer
from tests.services import free_port

NEW = "another long password"
EMAIL = "nia@example.com"


@pytest.fixture
def served(make_app: Callable[..., Flask], _mail_server: MailServer) -> Iterator[Mailbox]:
    """An application that listens, and its mailbox."""
    port = free_port()
    app = make_app(
        SSO_BASE_URL=f"http://127.0.0.1:{port}/api/auth",
        SSO_SMTP_URL=_mail_server.url,
        SSO_SIGN_UP="open",
    )
    server = make_server("127.0.0.1", port, torn(app), threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    _mail_server.messages.clear()
    yield Mailbox(app, _mail_server)
    server.shutdown()
    thread.join(10)


@pytest.fixture(params=[("en", "light"), ("ar", "dark")], ids=["en light", "ar dark"])
def page(request: pytest.FixtureRequest, chrome: Browser) -> Iterator[Page]:
    locale, scheme = request.param
    context = chrome.new_context(locale=locale, color_scheme=scheme, reduced_motion="reduce")
    yield context.new_page()
    context.close()


def send(page: Page, **fields: str) -> None:
    """Fill the form with the first-class button, and press it."""
    check(page)
    for name, value in fields.items():
        page.locator(f"#{name}").fill(value)
    press(page.locator("form button.primary").last)
    check(page)


def test_the_life_of_an_account(page: Page, served: Mailbox) -> None:
    base = served.app.extensions["sso.settings"].base_url
    page.goto(f"{base}/sign-in")
    press(page.locator("a[href*='/sign-up']"))
    send(page, email=EMAIL)
    assert "sent=1" in page.url
    page.goto(served.link(EMAIL))
    send(page, name="Nia New", new_password="too short!")
    assert page.locator("#new_password-error").is_visible()
    send(page, new_password="a first long password")
    assert page.get_by_role("status").is_visible()
    send(page, email=EMAIL, password="a first long password")

    press(page.locator("a[href$='/account/email']"))
    send(page, email="nia@elsewhere.example", password="wrong")
    send(page, password="a first long password")
    assert page.get_by_role("status").is_visible()
    link = served.link("nia@elsewhere.example")
    page.goto(link)
    send(page)
    page.goto(link)
    check(page)  # the link is dead

    page.context.clear_cookies()
    page.goto(f"{base}/sign-in")
    press(page.locator("a[href*='/forgotten-password']"))
    send(page, email="nia@elsewhere.example")
    page.goto(served.link("nia@elsewhere.example"))
    send(page, new_password=NEW)
    send(page, email="nia@elsewhere.example", password=NEW)
    assert page.url.endswith("/account")
