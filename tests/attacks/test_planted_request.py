"""The attacker's page leaves an authorization request in the victim's browser, for later.

The victim's next password would lead on to an application that the victim never opened. It ends
because a page that is opened stores nothing: the person has to send its form.
"""

from collections.abc import Callable

import pytest
from flask import Flask

from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import PASSWORD, make_client
from tests.support.mailbox import Mailbox

pytestmark = pytest.mark.slow

NEW = "another long password"
FORGOTTEN, SIGN_UP = f"{ORIGIN}{BASE}/forgotten-password", f"{ORIGIN}{BASE}/sign-up"
CROSS_SITE = ["cross-site", "same-site", "none"]


@pytest.fixture
def resume(app: Flask) -> str:
    """What the attacker got for a request of an application of theirs."""
    evil = make_client(app, name="Evil", redirect_uris=["https://evil.example/callback"])
    return Browser(app).authorize(evil).parameters["resume"]


def reset(browser: Browser, mailbox: Mailbox) -> Browser:
    """Set a new password by the mail; where it leads is the page."""
    browser.submit(email="dana@example.com")
    browser.open(mailbox.link("dana@example.com"))
    page = browser.submit(new_password=NEW)
    assert page.path.endswith("/sign-in")
    return browser


def test_a_link_of_another_site(
    browser: Browser, user: User, mailbox: Mailbox, resume: str
) -> None:
    browser.open(f"{FORGOTTEN}?resume={resume}")
    browser.open(FORGOTTEN)
    assert "resume" not in reset(browser, mailbox).page.parameters
    assert browser.sign_in(password=NEW).path.endswith("/account")


@pytest.mark.parametrize("site", CROSS_SITE)
def test_the_form_behind_a_link_of_another_site(
    browser: Browser, user: User, mailbox: Mailbox, resume: str, site: str
) -> None:
    browser.open(f"{FORGOTTEN}?resume={resume}", headers={"Sec-Fetch-Site": site})
    assert "resume" not in browser.page.html
    assert "resume" not in reset(browser, mailbox).page.parameters


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "same-origin"}])
def test_a_link_of_our_own_page(
    browser: Browser,
    client: RelyingParty,
    user: User,
    mailbox: Mailbox,
    headers: dict[str, str],
) -> None:
    page = browser.authorize(client)
    browser.open(page.url.replace("/sign-in", "/forgotten-password"), headers=headers)
    assert reset(browser, mailbox).page.parameters["resume"]
    browser.sign_in(password=NEW)
    assert browser.allow().code


def test_what_waited_before_is_forgotten(
    browser: Browser, client: RelyingParty, user: User, mailbox: Mailbox
) -> None:
    """Another try, from the account's own sign-in page, leads to the account."""
    page = browser.authorize(client)
    browser.open(page.url.replace("/sign-in", "/forgotten-password"))
    browser.submit(email="erin@example.com")
    browser.open(FORGOTTEN)
    assert "resume" not in reset(browser, mailbox).page.parameters


@pytest.mark.parametrize("planted", [True, False])
def test_signing_up(make_app: Callable[..., Flask], mailbox: Mailbox, planted: bool) -> None:
    app = make_app(SSO_SIGN_UP="open", SSO_SMTP_URL=mailbox.server.url)
    client = make_client(app)
    browser = Browser(app)
    waiting = browser.authorize(client)
    browser.open(f"{SIGN_UP}?resume={waiting.parameters['resume']}")
    if planted:
        browser.open(SIGN_UP)
    browser.submit(email="new@example.com")
    browser.open(mailbox.link("new@example.com"))
    page = browser.submit(name="New", new_password=PASSWORD)
    assert page.path.endswith("/account" if planted else "/consent")


@pytest.mark.parametrize("path", ["forgotten-password", "sign-up"])
def test_opening_a_page_changes_no_cookie(
    make_app: Callable[..., Flask], resume: str, path: str
) -> None:
    """But for the token of the form, at the first visit."""
    browser = Browser(make_app(SSO_SIGN_UP="open"))
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.open(f"{ORIGIN}{BASE}/{path}?resume={resume}")
    assert browser.history[-1].status_code == 200
    assert "Set-Cookie" not in browser.history[-1].headers
