"""Requests without number, or of a size that stops a worker: each has its bound."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import insert

from sso import audit, clock
from sso.audit import rows as audit_events
from sso.audit import writer
from sso.audit.events import Event
from sso.extensions import db
from sso.models import BrowserSession, User
from sso.ratelimit import storage
from sso.services import revocation
from sso.store import sessions
from tests.attacks.conftest import Watch
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import make_user

pytestmark = pytest.mark.slow

NEW = "another long password"
THIEFS = "the password of a thief"


def test_a_flood_of_client_ids_does_not_forgive_the_guesses(
    make_app: Callable[..., Flask], monkeypatch: pytest.MonkeyPatch, watch: Watch
) -> None:
    # 50 000 in life: a customer with a /56 has 256 networks, of 300 free failures an hour each.
    monkeypatch.setattr(storage, "MOST_COUNTERS", 500)
    app = make_app(SSO_TRUSTED_PROXIES="1")
    make_user(app)
    guesser = Browser(app)
    guesser.http.environ_base["HTTP_X_FORWARDED_FOR"] = "203.0.113.1"
    for _ in range(10):
        guesser.sign_in(password="wrong wrong wrong")
    assert guesser.page.status == 429
    http = app.test_client(use_cookies=False)
    for number in range(500):
        http.post(
            f"{BASE}/oauth2/token",
            data={"grant_type": "refresh_token", "client_id": f"c{number}", "client_secret": "x"},
            headers={"X-Forwarded-For": f"2001:db8:0:{number % 256:x}::1"},
        )
    assert guesser.sign_in(password="wrong wrong wrong").status == 429, "all is forgiven"


def test_one_request_does_not_stop_a_worker(app: Flask) -> None:
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    token = browser.page.fields["csrf_token"]
    address = "a" + "\u0301\u0316" * 30_000 + "@example.com"  # 120 kB as raw UTF-8
    body = b"csrf_token=" + token.encode() + b"&email=" + address.encode()
    began = time.process_time()
    answer = browser.http.post(
        f"{BASE}/forgotten-password",
        data=body,
        content_type="application/x-www-form-urlencoded",
        base_url=ORIGIN,
    )
    assert answer.status_code == 200
    took = time.process_time() - began
    assert took < 0.5, f"{took:.1f} s, with the interpreter's lock held"


def test_passkeys_that_are_none_fill_no_table(app: Flask) -> None:
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    token = browser.page.fields["csrf_token"]
    statuses = {
        browser.http.post(
            f"{BASE}/sign-in/passkey", data={"csrf_token": token}, base_url=ORIGIN
        ).status_code
        for _ in range(400)
    }
    writer.flush(app)
    with app.app_context():
        rows = len(audit_events.newest(names=["sign_in_failed"], limit=1000))
    assert 429 in statuses
    assert rows < 400


def test_sign_ins_without_number_do_not_block_the_reset(
    app: Flask,
    user: User,
    owner: Browser,
    statements: Callable[[], Any],
) -> None:
    for _ in range(revocation.MOST_SESSIONS + 10):
        Browser(app).sign_in()  # the right password is never limited
    with app.app_context():
        count = len(sessions.of_user(user.id))
    assert count == revocation.MOST_SESSIONS
    with statements() as seen:
        owner.submit(new_password=NEW)
    assert len(seen) < 50, f"{len(seen)} statements in one transaction for {count} sign-ins"


@pytest.mark.parametrize("many", [500, 1000])
def test_a_flood_of_sign_ins_does_not_make_the_reset_impossible(
    app: Flask, user: User, owner: Browser, statements: Callable[[], Any], many: int
) -> None:
    # As many as sign-ins with the stolen password make in a minute: none of them is limited.
    now = clock.now()
    with app.app_context():
        db.session.execute(
            insert(BrowserSession),
            [
                {
                    "id": uuid4(), "digest": f"sha256:{n}", "user_id": user.id, "auth_time": now,
                    "amr": "pwd", "acr": "1", "created_at": now, "last_seen_at": now,
                    "expires_at": now + timedelta(days=14), "remembered": False,
                }
                for n in range(many)
            ],
        )  # fmt: skip
        db.session.commit()
    with statements() as seen:
        owner.submit(new_password=NEW)
    assert owner.page.path.endswith("/sign-in"), owner.page.status
    assert len(seen) < 50, f"{len(seen)} statements for {many}, with the database locked"


def test_many_events_of_one_transaction_are_written(app: Flask) -> None:
    with app.app_context():
        # Eight values each; SQLite takes 250 000 or 32 766 of them, PostgreSQL 65 535.
        for number in range(31_300 if db.engine.dialect.name == "sqlite" else 8_200):
            audit.event(Event.SESSION_ENDED, sid=number)
        db.session.commit()
