"""The numbers of the overview: of what lives, each owner once, and up to a limit."""

from datetime import timedelta
from typing import Any

from flask import Flask

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import BrowserSession, Mail, Passkey, TotpSecret, User
from sso.store import sessions, totals
from tests.conftest import Clock
from tests.support.administration import ADMIN, sign_in_staff
from tests.support.factories import make_user
from tests.support.statements import watched

OUTBOXES = {"mails", "logout_deliveries", "webhook_deliveries"}


def test_only_what_lives_is_counted(app: Flask, user: User) -> None:
    now = clock.now()
    with app.app_context():
        for number, (lives, ended_at) in enumerate(((1, None), (1, now), (-1, None))):
            db.session.add(BrowserSession(
                digest=str(number), user_id=user.id, auth_time=now, amr="pwd", acr="1",
                expires_at=now + timedelta(hours=lives), ended_at=ended_at,
            ))  # fmt: skip
        mails = [Mail(kind="verify", address="x@example.com") for _ in range(2)]
        db.session.add_all(mails)
        db.session.flush()
        mails[0].next_attempt_at = None  # it was sent
        db.session.flush()
        assert (totals.sessions(9), totals.mails(9)) == (1, 1)


def test_an_owner_of_two_factors_counts_once(app: Flask, user: User) -> None:
    erin = make_user(app, "erin@example.com")
    with app.app_context():
        db.session.add(TotpSecret(user_id=user.id, sealed_secret="x", last_step=1))
        for number, owner in enumerate((user, user, erin)):
            db.session.add(Passkey(
                user_id=owner.id, credential_id=bytes([number]), public_key=b"x", sign_count=0,
                name="Key",
            ))  # fmt: skip
        db.session.flush()
        assert totals.with_second_factor(9) == 2


def test_who_was_active(app: Flask, user: User, clock: Clock) -> None:
    clock.stand_still()
    days = timedelta(days=30)
    ages = (timedelta(0), days, days + timedelta(seconds=1))
    ids = [user.id, *(make_user(app, f"{name}@example.com").id for name in ("erin", "finn"))]
    make_user(app, "gail@example.com")  # never
    with app.app_context():
        sessions.note_all_active({})
        sessions.note_all_active({id: clock.time - age for id, age in zip(ids, ages, strict=True)})
        kept = db.session.get_one(User, user.id)
        assert (kept.version, kept.updated_at) == (user.version, user.updated_at)
        assert [totals.active_people(30, most) for most in (1, 2, 3)] == [2, 2, 2]


def test_up_to_a_limit(app: Flask, user: User) -> None:
    make_user(app, "erin@example.com")
    make_user(app, "finn@example.com")
    with app.app_context():
        assert [totals.people(most) for most in (1, 2, 3)] == [2, 3, 3]


def test_sqlite_reads_no_outbox_whole(app: Flask) -> None:
    ada = sign_in_staff(app)
    statements: list[tuple[str, Any]] = []
    with app.app_context():
        engine = db.engine
    with watched(engine, lambda statement, values: statements.append((statement, values))):
        assert ada.open(ADMIN).status == 200
        assert ada.open(f"{ADMIN}/webhooks").status == 200
    with app.app_context():
        if dialects.is_postgresql():
            return  # its plans are in tests/store/test_plans.py
        plans = {
            statement: [row.detail for row in db.session.connection().exec_driver_sql(
                f"EXPLAIN QUERY PLAN {statement}", parameters
            )]
            for statement, parameters in statements
            if statement.startswith("SELECT") and any(table in statement for table in OUTBOXES)
        }  # fmt: skip
    assert {table for table in OUTBOXES if f" {table}" in str([*plans])} == OUTBOXES
    for statement, steps in plans.items():
        scans = [step for step in steps if step.startswith("SCAN") and " USING " not in step]
        assert not [scan for scan in scans if scan.split()[1] in OUTBOXES], (statement, steps)
