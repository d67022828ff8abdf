"""What a person does with second factors."""

import html
import re

import pyotp

from sso import clock
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.authenticator import Authenticator, options_of
from tests.support.mailbox import Mailbox, text_of

FACTORS = f"{ORIGIN}{BASE}/account/factors"
ACCOUNT = f"{ORIGIN}{BASE}/account"
ASK = f"{ACCOUNT}/confirm?action="  # the question before something is removed


def code_of(secret: str, steps: int = 0) -> str:
    """What the app shows now, or so many steps later."""
    return pyotp.HOTP(secret).at(clock.timestamp(clock.now()) // 30 + steps)


def scan(page: Page) -> str:
    """The secret of the set-up page."""
    found = re.search(r'class="secret">([^<]*)<', page.html)
    assert found, page.html
    return found[1].replace(" ", "")


CODE = re.compile(r"\b\d{4}-\d{4}\b")


def ask_for_code(browser: Browser, mailbox: Mailbox) -> str:
    """Have the code mailed that the first factor needs; leaves the browser at its form."""
    mailbox.read()
    browser.open(f"{FACTORS}/code")
    browser.submit(action="send")
    (mail,) = [one for one in mailbox.read() if "confirmation code" in one["Subject"]]
    (code,) = set(CODE.findall(text_of(mail)))
    return str(code)


def confirm_by_code(browser: Browser, mailbox: Mailbox) -> Page:
    """Prove that one reads the account's mail: the way to the first factor."""
    code = ask_for_code(browser, mailbox)
    return browser.submit(code=code)


def enrol_totp(browser: Browser, url: str = f"{FACTORS}/totp") -> tuple[str, list[str]]:
    """Set up an authenticator app; its secret, and the recovery codes if there are new ones."""
    page = browser.open(url)
    secret = scan(page)
    page = browser.submit(code=code_of(secret))
    return secret, codes_of(page)


def codes_of(page: Page) -> list[str]:
    sheet = re.search(r'<textarea id="codes"[^>]*>([^<]*)</textarea>', page.html)
    return sheet[1].split() if sheet else []


def enrol_passkey(browser: Browser, authenticator: Authenticator, **more: bool) -> Page:
    page = browser.open(FACTORS)
    answer = authenticator.create(options_of(page), **more)
    return browser.submit(action="add_passkey", credential=answer)


def remove_passkey(browser: Browser) -> Page:
    """Remove the only passkey: its link leads to a question, which is answered."""
    page = browser.open(FACTORS)
    (link,) = re.findall(r'href="([^"]*action=remove_passkey[^"]*)"', page.html)
    browser.open(html.unescape(link))
    return browser.submit(action="remove_passkey")


def sign_in_by_passkey(browser: Browser, authenticator: Authenticator, **more: object) -> Page:
    """From the sign-in page, which is open."""
    answer = authenticator.get(options_of(browser.page), **more)  # type: ignore[arg-type]
    query = browser.page.url.partition("?")[2]
    form = {**browser.page.fields, "credential": answer}
    return browser.open(f"{BASE}/sign-in/passkey?{query}", method="POST", data=form)


def is_signed_in(browser: Browser) -> bool:
    return browser.open(ACCOUNT).path.endswith("/account")
