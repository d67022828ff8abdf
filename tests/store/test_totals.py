"""The numbers of the overview: of what lives, each owner once, and up to a limit."""

from datetime import timedelta

from flask import Flask

from sso import clock
from sso.extensions import db
from sso.models import BrowserSession, Mail, Passkey, TotpSecret, User
from sso.store import totals
from tests.support.factories import make_user


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


def test_up_to_a_limit(app: Flask, user: User) -> None:
    make_user(app, "erin@example.com")
    make_user(app, "finn@example.com")
    with app.app_context():
        assert [totals.people(most) for most in (1, 2, 3)] == [2, 3, 3]
