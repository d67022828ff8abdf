"""Administrators, and what they do in a browser."""

from typing import Any

from flask import Flask

from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.factories import make_user
from tests.support.second_factors import enrol_totp

ADMIN = f"{ORIGIN}{BASE}/admin"
ADMINS, HELPDESK = "sso-administrators", "sso-helpdesk"


class StaffBrowser(Browser):
    """Sends what real browsers send with a form of the same site."""

    secret = ""  # of the authenticator app

    def open(self, url: str, method: str = "GET", **more: Any) -> Page:
        if method == "POST":
            more = {"headers": {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}, **more}
        return super().open(url, method, **more)


def sign_in_staff(app: Flask, email: str = "ada@example.com", group: str = ADMINS) -> StaffBrowser:
    """A new member of the group, who has just shown a second factor."""
    make_user(app, email, name="Ada Admin", groups=[group] if group else [])
    browser = StaffBrowser(app)
    browser.sign_in(email)
    browser.secret, _ = enrol_totp(browser)
    return browser
