"""What people do for themselves, in a loop: each has a budget of rows in the audit trail."""

import logging
from uuid import uuid4

import pytest
from flask import Flask

from sso import audit
from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.events import events
from tests.support.factories import make_client, make_user

KINDS = ("code_issued", "consent_given", "consent_denied", "consent_withdrawn")


def test_a_loop(
    app: Flask,
    user: User,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(audit, "OWN_EVENTS_AN_HOUR", 2)
    client = make_client(app)
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in()
    for _ in range(5):
        browser.authorize(client)
        browser.deny()
        browser.authorize(client)
        assert browser.allow().code
        browser.open(f"{ORIGIN}{BASE}/account")
        browser.submit(action="withdraw", client=client.client_id)
    for kind in KINDS:
        assert len(events(app, kind)) == 2, kind
        (told,) = events(app, f"{kind}_limited")
        assert told["user"] == str(user.id)
        assert sum(f"{kind} {{" in record.getMessage() for record in caplog.records) == 5
    # Another person has a budget of their own.
    make_user(app, "erin@example.com")
    erin = Browser(app)
    erin.sign_in("erin@example.com")
    erin.authorize(client)
    erin.allow()
    assert len(events(app, "code_issued")) == 3


def test_counts_are_of_this_hour_and_do_not_take_all_memory(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    counts, user = audit._Counts(), uuid4()
    monkeypatch.setattr(audit, "MOST_COUNTERS", 3)
    assert [counts.increase("a", user) for _ in range(3)] == [1, 2, 3]
    assert counts.increase("b", user) == 1
    clock.time = clock.time.replace(minute=59, second=59)
    assert counts.increase("a", user) == 4
    clock.move(seconds=1)
    assert counts.increase("a", user) == 1
    for _ in range(7):
        counts.increase("a", uuid4())
        assert len(counts._counts) <= 3
