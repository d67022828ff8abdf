"""What several attacks begin with."""

from datetime import UTC, datetime

import pytest
from flask import Flask

from sso import clock
from sso.models import User
from sso.ratelimit import storage
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.mailbox import Mailbox


def reset_link(app: Flask, email: str, mailbox: Mailbox) -> str:
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email=email)
    return mailbox.link(email)


@pytest.fixture
def owner(app: Flask, user: User, mailbox: Mailbox) -> Browser:
    """The owner has the page with the new password open, and is about to press the button."""
    browser = Browser(app)
    browser.open(reset_link(app, user.email, mailbox))
    return browser


class Watch:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    moving = Watch()
    monkeypatch.setattr(storage, "monotonic", moving.time)
    monkeypatch.setattr(clock, "source", lambda: datetime.fromtimestamp(moving.now, UTC))
    return moving
