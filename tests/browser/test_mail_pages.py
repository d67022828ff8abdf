"""The pages around mails in a real browser, from making an account to a forgotten password.

axe looks at each of them on the way.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page
from werkzeug.serving import make_server

from tests.browser.conftest import press
from tests.browser.test_accessibility import check
from tests.browser.torn import torn
from tests.conftest import Clock
from tests.support.factories import PASSWORD, make_attribute, make_user
from tests.support.mailbox import Mailbox, MailServer, text_of
from tests.support.processes import free_port
from tests.support.second_factors import CODE, code_of

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
        SSO_MAIL_CODES="on",
    )
    server = make_server("127.0.0.1", port, torn(app), threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    _mail_server.messages.clear()
    yield Mailbox(app, _mail_server)
    server.shutdown()
    thread.join(10)


@pytest.fixture(
    params=[("en", "light"), pytest.param(("ar", "dark"), marks=pytest.mark.exhaustive)],
    ids=["en light", "ar dark"],
)
def page(request: pytest.FixtureRequest, chrome: Browser) -> Iterator[Page]:
    locale, scheme = request.param
    context = chrome.new_context(locale=locale, color_scheme=scheme, reduced_motion="reduce")
    yield context.new_page()
    context.close()


def look(page: Page) -> None:
    """With axe, once for each page that was loaded."""
    if not page.evaluate("window.isChecked"):
        check(page)
        page.evaluate("window.isChecked = true")


def send(page: Page, **fields: str) -> None:
    """Fill the form with the first-class button, and press it."""
    look(page)
    for name, value in fields.items():
        page.locator(f"#{name}").fill(value)
    press(page.locator("form button.primary").last)
    look(page)


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
    assert page.url.endswith("/account")

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
    assert page.locator("#email").input_value() == "nia@elsewhere.example"
    send(page, password=NEW)
    assert page.url.endswith("/account")


def test_a_sign_in_by_code(page: Page, served: Mailbox) -> None:
    """By the button on the sign-in page, with the address typed before; a wrong code first."""
    user = make_user(served.app)
    base = served.app.extensions["sso.settings"].base_url
    page.goto(f"{base}/sign-in")
    page.locator("#email").fill(user.email)
    press(page.locator("button[formaction]"))
    (mail,) = [mail for mail in served.read() if CODE.search(text_of(mail))]
    send(page, code="0000 0000")
    assert page.locator("#problem").is_visible()
    send(page, code=CODE.findall(text_of(mail))[0])
    assert page.url.endswith("/account")


def test_terms_and_attributes(page: Page, served: Mailbox) -> None:
    """With an invitation, and later when the terms have changed; refused first, each time."""
    settings = served.app.extensions["sso.settings"]
    terms = {"terms_url": "https://example.com/terms"}
    served.app.extensions["sso.settings"] = replace(settings, terms_version="1", **terms)
    make_attribute(served.app, "company", title="Company", at_sign_up="required")
    invited = ["user", "invite", "--email", EMAIL, "--name", "Nia"]
    assert served.app.test_cli_runner().invoke(args=invited).exit_code == 0
    page.goto(served.link(EMAIL))
    page.evaluate("document.querySelectorAll('form').forEach(form => form.noValidate = true)")
    send(page, new_password=NEW)
    assert page.locator("[aria-invalid=true]").count() == 2
    page.locator("[name=accept]").check()
    send(page, new_password=NEW, attribute_company="Acme")
    send(page, password=NEW)
    served.app.extensions["sso.settings"] = replace(settings, terms_version="2", **terms)
    page.goto(f"{settings.base_url}/terms")
    page.evaluate("document.querySelectorAll('form').forEach(form => form.noValidate = true)")
    send(page)
    page.locator("[name=accept]").check()
    send(page)
    assert page.url.endswith("/account")


@pytest.mark.parametrize(
    "scripts",
    [
        pytest.param(True, id="with scripts"),
        pytest.param(False, id="without scripts", marks=pytest.mark.exhaustive),
    ],
)
def test_the_first_factor_asks_for_a_code(
    chrome: Browser, served: Mailbox, clock: Clock, scripts: bool
) -> None:
    """From the account's page to the recovery codes; then the password asks for the factor."""
    user = make_user(served.app)
    base = served.app.extensions["sso.settings"].base_url
    context = chrome.new_context(java_script_enabled=scripts)
    page = context.new_page()
    page.goto(f"{base}/sign-in")
    page.locator("#email").fill(user.email)
    page.locator("#password").fill(PASSWORD)
    press(page.locator("form button.primary"))
    page.goto(f"{base}/account/factors")
    press(page.get_by_role("link", name="Confirm your email address"))
    served.read()
    press(page.get_by_role("button", name="Send me a code"))
    assert page.get_by_role("status").is_visible()
    (mail,) = served.read()
    page.get_by_label("Code from the email").fill("0000 0000")
    press(page.get_by_role("button", name="Continue"))
    assert page.get_by_role("alert").is_visible()
    page.get_by_label("Code from the email").fill(CODE.findall(text_of(mail))[0])
    press(page.get_by_role("button", name="Continue"))
    press(page.get_by_role("link", name="Set up an authenticator app"))
    secret = (page.locator(".secret").text_content() or "").replace(" ", "")
    page.get_by_label("Code shown in the app").fill(code_of(secret))
    press(page.get_by_role("button", name="Turn it on"))
    assert len(page.get_by_label("Recovery codes").input_value().split()) == 10
    clock.move(minutes=16)
    page.goto(f"{base}/account")
    press(page.get_by_role("link", name="Confirm with your second factor"))
    page.get_by_label("Code from your authenticator app").fill(code_of(secret))
    press(page.get_by_role("button", name="Continue", exact=True))
    page.locator("#old_password").fill(PASSWORD)
    page.locator("#new_password").fill(NEW)
    press(page.locator("button[value=change_password]"))
    assert page.get_by_role("status").is_visible()
    context.close()


@pytest.mark.exhaustive
def test_axe_finds_nothing_on_the_way_to_the_first_factor(
    page: Page, served: Mailbox, clock: Clock
) -> None:
    user = make_user(served.app)
    base = served.app.extensions["sso.settings"].base_url

    def look(path: str) -> None:
        page.goto(path)
        for width in (375, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            check(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, page.url

    page.goto(f"{base}/sign-in")
    page.locator("#email").fill(user.email)
    page.locator("#password").fill(PASSWORD)
    press(page.locator("form button.primary"))
    look(f"{base}/account/factors")
    look(f"{base}/account/factors/code")
    press(page.locator("button[value=send]"))
    look(page.url)
    page.locator("#code").fill("00000000")
    press(page.locator("form button.primary"))
    check(page)
    made = served.app.test_cli_runner().invoke(args=["user", "enrolment-link", user.email])
    look(made.stdout.strip())
    press(page.locator("form button.primary"))
    page.goto(f"{base}/account/factors/totp")
    secret = (page.locator(".secret").text_content() or "").replace(" ", "")
    page.locator("#code").fill(code_of(secret))
    press(page.locator("form button.primary"))
    clock.move(minutes=16)
    look(f"{base}/account")
    look(f"{base}/account/email")
    look(f"{base}/second-factor?back=email")
    look(made.stdout.strip())  # the link is dead
