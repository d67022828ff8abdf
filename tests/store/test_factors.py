"""A code seen by two, used at the same instant: one gets in."""

from collections import Counter
from datetime import UTC, datetime

from flask import Flask

from sso import clock
from sso.crypto import secrets
from sso.extensions import db
from sso.models import Passkey, TotpSecret, User
from sso.store import factors
from tests.store.test_races import at_once

STEP = 59_000_000


def test_one_time_step(app: Flask, user: User) -> None:
    with app.app_context():
        factors.add_totp_secret(TotpSecret(user_id=user.id, sealed_secret="x", last_step=STEP - 1))
        db.session.commit()

    def use() -> bool:
        with app.app_context():
            used = factors.use_totp_secret(user.id, STEP, clock.now())
            db.session.commit()
            return used

    assert Counter(at_once(10, use)) == {True: 1, False: 9}


def test_one_recovery_code(app: Flask, user: User) -> None:
    digest = secrets.digest("a code")
    with app.app_context():
        factors.replace_recovery_codes(user.id, [digest, secrets.digest("another")], clock.now())
        db.session.commit()

    def use() -> bool:
        with app.app_context():
            used = factors.use_recovery_code(user.id, digest, clock.now())
            db.session.commit()
            return used

    assert Counter(at_once(10, use)) == {True: 1, False: 9}
    with app.app_context():
        assert factors.unused_recovery_codes(user.id) == 1


def test_one_answer_to_a_challenge(app: Flask, user: User) -> None:
    challenged_at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    with app.app_context():
        key = Passkey(user_id=user.id, name="x", credential_id="x", public_key="x")
        factors.add_passkey(key)
        db.session.commit()

    def use() -> bool:
        with app.app_context():
            used = factors.use_passkey(key, challenged_at, 0, clock.now())
            db.session.commit()
            return used

    assert Counter(at_once(10, use)) == {True: 1, False: 9}


def test_what_a_user_has(app: Flask, user: User) -> None:
    with app.app_context():
        factors.replace_recovery_codes(user.id, ["a code"], clock.now())
        assert not factors.has_any(db.session.connection(), user.id)
        assert not factors.of_user(user.id)
        factors.add_totp_secret(TotpSecret(user_id=user.id, sealed_secret="x"))
        assert factors.has_any(db.session.connection(), user.id)
        factors.remove_all(user.id)
        assert not factors.has_any(db.session.connection(), user.id)
        assert factors.of_user(user.id).recovery_codes == 0
