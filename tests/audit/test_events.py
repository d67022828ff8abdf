"""What an audit event holds, and which outlive the transaction that they were told in."""

import json
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit, clock
from sso.audit import rows as audit_events
from sso.audit import writer
from sso.audit.events import Event
from sso.extensions import db
from sso.models import AuditEvent, Refusal, User
from sso.store import refusals
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_user

TOKEN = "sso_rt_" + "t" * 43
JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJkYW5hIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ"


def rows(app: Flask) -> list[AuditEvent]:
    assert writer.flush(app)
    with app.app_context():
        return list(audit_events.newest(limit=100))


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (Event.SIGN_IN_FAILED, True),
        (Event.TOKENS_REFUSED, True),
        (Event.MAIL_LIMITED, True),
        (Event.EXPORTED, False),
        (Event.SIGNED_IN, False),
    ],
)
def test_what_outlives_a_rollback(app: Flask, name: Event, kept: bool) -> None:
    with app.app_context():
        audit.event(name)
        db.session.connection()
        db.session.rollback()
    assert [row.name for row in rows(app)] == [name] * kept


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (Event.SIGN_IN_FAILED, True),
        (Event.TOKENS_REFUSED, True),
        (Event.MAIL_LIMITED, True),
        (Event.SIGNED_IN, False),
    ],
)
def test_what_outlives_a_fault(app: Flask, name: Event, kept: bool) -> None:
    def fail() -> None:
        with app.app_context():
            audit.event(name)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [row.name for row in rows(app)] == [name] * kept


def test_a_savepoint_is_no_transaction(app: Flask) -> None:
    with app.app_context():
        audit.event(Event.EXPORTED)
        with db.session.begin_nested():
            pass
        db.session.rollback()
    assert rows(app) == []
    with app.app_context():
        audit.event(Event.EXPORTED)
        nested = db.session.begin_nested()
        nested.rollback()
        db.session.commit()
    assert [row.name for row in rows(app)] == [Event.EXPORTED]


@pytest.mark.parametrize(
    "secret",
    [TOKEN, JWT, f"Bearer {'b' * 20}", f"Basic {'b' * 20}", "postgresql://sso:hunter2hunter2@db/x"],
)
def test_no_secret_is_in_the_trail(app: Flask, secret: str) -> None:
    with app.app_context():
        audit.event(Event.EXPORTED, reason=f"because of {secret}", user=secret, client=secret)
        db.session.commit()
    (row,) = rows(app)
    hidden = secret.removeprefix("sso_rt_").split("//sso:")[-1].removesuffix("@db/x").split()[-1]
    for text in (row.fields, row.user_id, row.client_id):
        assert hidden not in str(text)
    assert "because of" in row.fields


def test_nor_what_a_browser_says_of_itself(app: Flask, user: User) -> None:
    browser = Browser(app)
    page = browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.open(
        page.url,
        method="POST",
        data={**page.fields, "email": "dana@example.com", "password": "wrong wrong wrong"},
        headers={"User-Agent": f"Agent {JWT} {'x' * 500}"},
    )
    (row,) = rows(app)
    assert row.name == "sign_in_failed"
    assert row.browser
    assert row.browser.startswith("Agent ")
    assert "eyJ" not in row.browser
    assert len(row.browser) <= 200


@pytest.mark.parametrize(
    "typed",
    ["hunter2-in-the-wrong-field", "hunter2@my-pass.word", "hunter2\0hunter2", "hunter2" * 60],
)
@pytest.mark.parametrize("path", ["sign-in", "forgotten-password", "sign-up"])
def test_nor_what_nobody_is_known_by(
    app: Flask, path: str, typed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An unknown address is often a password; up to the limit of tries, and beyond it."""
    caplog.set_level("DEBUG")
    app.extensions["sso.settings"] = replace(app.extensions["sso.settings"], sign_up="open")
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/{path}")
    fields = {**browser.page.fields, "email": typed, "password": "hunter2 as well"}
    for _ in range(8):
        browser.open(browser.page.url, method="POST", data=fields)
        browser.open(f"{ORIGIN}{BASE}/{path}")
    events = [str({**vars(row), "_sa_instance_state": None}) for row in rows(app)]
    assert events or path != "sign-in" or "@" not in typed
    refusals.flush(app)
    with app.app_context():
        refused = [str(vars(row)) for row in db.session.scalars(select(Refusal))]
    assert "hunter2" not in "".join([*events, *refused, caplog.text])


@pytest.mark.parametrize("state", ["usual", "disabled", "without a password"])
def test_nor_the_address_of_a_user_who_fails(
    app: Flask, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The trail has the user's id."""
    caplog.set_level("DEBUG")
    password = None if state == "without a password" else PASSWORD
    user = make_user(app, "hunter2@example.com", password=password)
    with app.app_context():
        if state == "disabled":
            db.session.get_one(User, user.id).disabled_at = clock.now()
            db.session.commit()
    # Nor is a disabled user's right password taken for a sign-in.
    Browser(app).sign_in(user.email, PASSWORD if state == "disabled" else "not it, hunter2")
    (row,) = rows(app)
    assert (row.name, row.user_id) == (Event.SIGN_IN_FAILED, str(user.id))
    assert "hunter2" not in str(vars(row)) + caplog.text


def test_long_and_odd_text_is_cut(app: Flask) -> None:
    with app.app_context():
        audit.event(Event.EXPORTED, reason="x" * 1000, colour="blue\0", user="\ud800", empty=None)
        db.session.commit()
    (row,) = rows(app)
    fields: dict[str, Any] = json.loads(row.fields)
    assert fields.keys() == {"reason", "colour"}
    assert 0 < len(fields["reason"]) <= 200
    assert fields["colour"] == "blue"
    assert row.user_id == "?"


def test_who_acts(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    with app.app_context(), audit.acting_as(audit.Actor("olga")):
        audit.event(Event.EXPORTED)
        db.session.commit()
    with app.app_context():
        audit.event(Event.EXPORTED)
        db.session.commit()
    fields = [json.loads(row.fields) for row in rows(app)]
    assert sorted(fields, key=len) == [{}, {"operator": "olga"}]
    monkeypatch.setenv("SUDO_USER", "olga")
    assert audit.system_user().endswith(" (sudo: olga)")
    monkeypatch.delenv("SUDO_USER")
    assert "sudo" not in audit.system_user()
