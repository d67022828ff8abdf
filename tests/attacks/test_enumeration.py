"""The attacker wants to know who has an account here.

It ends at one answer for a wrong password, an unknown address and a disabled user, and at a hash
that is computed in all three cases.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
from argon2 import PasswordHasher
from flask import Flask

from sso.crypto import passwords
from sso.models import User
from tests.conftest import Statements
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import make_user


class Counting(PasswordHasher):
    """Counts how often a password is verified."""

    verified = 0

    def verify(self, hash: Any, password: Any) -> Any:
        self.verified += 1
        return super().verify(hash, password)


@pytest.mark.parametrize("email", ["nobody@example.com", "off@example.com", "dana@example.com"])
def test_all_failures_look_and_cost_the_same(
    app: Flask, user: User, email: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_user(app, "off@example.com")
    app.test_cli_runner().invoke(args=["user", "disable", "off@example.com"])
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    known = "correct horse battery" if email.startswith("off") else "wrong wrong wrong"
    counting = Counting(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "hasher", counting)
    page = browser.sign_in(email, known)
    assert counting.verified == 1
    assert page.status == 200
    assert page.fields["email"] == email
    assert "The email address or the password is wrong." in page.html


@pytest.mark.parametrize("path", ["forgotten-password", "sign-up"])
def test_asking_for_a_mail_tells_nothing(
    app: Flask, user: User, path: str, statements: Callable[[], AbstractContextManager[Statements]]
) -> None:
    """The same page, the same cookies, the same statements: the worker alone finds out."""
    app.extensions["sso.settings"] = replace(app.extensions["sso.settings"], sign_up="open")
    make_user(app, "off@example.com")
    app.test_cli_runner().invoke(args=["user", "disable", "off@example.com"])
    seen = []
    for email in ("dana@example.com", "nobody@example.com", "off@example.com"):
        browser = Browser(app)
        browser.open(f"{ORIGIN}{BASE}/{path}")
        with statements() as run:
            page = browser.submit(email=email)
        cookies = [
            [cookie.split("=")[0] for cookie in one.headers.getlist("Set-Cookie")]
            for one in browser.history
        ]
        statuses = [one.status_code for one in browser.history]
        shown = page.html.partition("</main>")[0]
        seen.append((shown, statuses, cookies, list(run), run.commits))
        assert not any("users" in statement for statement in run)
    assert seen[0] == seen[1] == seen[2]
