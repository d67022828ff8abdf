"""A request of the greatest length: what our steps add to it still fits."""

import secrets
from urllib.parse import urlencode

import pytest
from flask import Flask

from sso.models import User
from sso.store import approvals
from sso.web.pending_request import MAX_LENGTH
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client

NOISE = secrets.token_urlsafe(8000)  # does not get shorter when it is compressed


def longest(browser: Browser, client: RelyingParty, **more: str) -> str:
    """The last address of a step before requests become too long for one."""
    fits, found = 3000, ""
    for step in (1000, 100, 10, 1):
        while True:
            values = client.parameters(state=NOISE[: fits + step], **more)
            place = browser.http.get(
                f"{BASE}/oauth2/authorize?{urlencode(values)}", base_url=ORIGIN
            ).headers["Location"]
            if "resume=" not in place:
                break
            fits, found = fits + step, place
    assert MAX_LENGTH - 10 < len(found.partition("resume=")[2]) <= MAX_LENGTH
    return found


@pytest.fixture
def signed_in(browser: Browser, user: User) -> Browser:
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in()
    return browser


def test_all_steps(app: Flask, signed_in: Browser) -> None:
    client = make_client(app)
    signed_in.open(longest(signed_in, client, prompt="login select_account consent"))
    signed_in.sign_in()
    assert signed_in.allow().code


def test_a_choice(app: Flask, signed_in: Browser) -> None:
    client = make_client(app, first_party=True)
    signed_in.open(longest(signed_in, client, prompt="select_account"))
    assert signed_in.submit(decision="continue").code


def test_no_member(app: Flask, signed_in: Browser) -> None:
    client = make_client(app, first_party=True, groups=["staff"])
    assert signed_in.open(longest(signed_in, client)).status == 403


def test_overtaken(app: Flask, signed_in: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sealed for the first time, because it has to be decided again."""
    client = make_client(app, first_party=True)
    monkeypatch.setattr(approvals, "add", lambda *_, **__: False)
    values = client.parameters(state=NOISE[:6800])
    page = signed_in.open(f"{ORIGIN}{BASE}/oauth2/authorize?{urlencode(values)}")
    assert page.error == "invalid_request"
