"""Administrators, and what they do in a browser."""

from collections import defaultdict
from html.parser import HTMLParser
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask

from sso import audit
from sso.audit import Actor
from sso.endpoints import browser_session
from sso.extensions import db
from sso.mfa import totp
from sso.models import Identity, User
from sso.ratelimit import device_cookie
from sso.services import roles, second_factors
from sso.store import factors, identities, users
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.factories import make_user
from tests.support.second_factors import code_of

ADMIN = f"{ORIGIN}{BASE}/admin"
ADMINS, HELPDESK = "sso-administrators", "sso-helpdesk"


class StaffBrowser(Browser):
    """Sends what real browsers send with a form of the same site."""

    secret = ""  # of the authenticator app

    def open(self, url: str, method: str = "GET", **more: Any) -> Page:
        if method == "POST":
            more = {"headers": {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}, **more}
        return super().open(url, method, **more)

    def send(self, **values: Any) -> Page:
        """Send the page's form with all that stands in it, and these values."""
        forms = _WholeForm()
        forms.feed(self.page.html)
        return self.open(self.page.url, "POST", data={**forms.values, **values})


class _WholeForm(HTMLParser):
    """What a browser sends for the first form that is posted."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, list[str]] = defaultdict(list)
        self._is_in = self._is_over = False
        self._name: str | None = None  # of the list or text that is being read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form" and not self._is_over:
            self._is_in = found.get("method") == "post"
        if not self._is_in:
            return
        is_ticked = found.get("type") != "checkbox" or "checked" in found
        if tag == "input" and found.get("name") and found.get("type") != "file" and is_ticked:
            self.values[found["name"]].append(found.get("value", ""))
        elif tag in ("textarea", "select"):
            name = self._name = found["name"]
            if tag == "textarea":
                self.values[name].append("")
        elif tag == "option" and self._name is not None and "selected" in found:
            self.values[self._name].append(found["value"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "form" and self._is_in:
            self._is_in, self._is_over = False, True
        elif tag in ("textarea", "select"):
            self._name = None

    def handle_data(self, data: str) -> None:
        if self._is_in and self._name and (self.get_starttag_text() or "").startswith("<textarea"):
            self.values[self._name][-1] += data


def link_identity(app: Flask, user: User, **more: str) -> UUID:
    """An account at a provider that signs the user in."""
    usual = {"provider": "corp", "issuer": "https://corp.example", "subject": uuid4().hex}
    with app.app_context():
        identity = Identity(user_id=user.id, **(usual | more))
        identities.add(identity)
        db.session.commit()
        return identity.id


def sign_in_staff(app: Flask, email: str = "ada@example.com", group: str = ADMINS) -> StaffBrowser:
    """A new member of the group, who has just shown a second factor.

    With all that the pages of the way there do, which have tests of their own, in one request.
    """
    user = make_user(app, email, name="Ada Admin", groups=[group] if group else [])
    browser, page = StaffBrowser(app), "pages.sign_in"
    browser.secret = totp.new_secret()

    def enter() -> str:
        locked = users.lock(user.id)
        assert locked
        browser_session.begin(locked)
        current = browser_session.current_session()
        assert current
        none, code = factors.of_user(user.id), code_of(browser.secret)
        added = second_factors.add_totp(audit.USER, current, none, browser.secret, code)
        assert added
        device_cookie.remember(locked)
        browser_session.step_up(current, added.methods)
        db.session.commit()
        return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(app.view_functions, page, enter)
        assert browser.open(f"{ORIGIN}{BASE}/sign-in").status == 200
    browser.page = Page(ORIGIN, 0)
    return browser


def staff_of(app: Flask, *groups: str) -> Actor:
    """An operator whose rights come from these groups."""
    user = make_user(app, f"{'-'.join(groups)}@staff.example", groups=list(groups))
    with app.app_context():
        rights = roles.rights_of(user.groups)
    return Actor(
        user.email,
        user_id=user.id,
        permissions=rights.permissions,
        limits=rights.limits,
        applications=rights.applications,
    )
