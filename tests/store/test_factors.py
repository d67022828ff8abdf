"""A code seen by two, used at the same instant: one gets in."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import clock
from sso.crypto import passwords, secrets
from sso.extensions import db
from sso.models import BrowserSession, Passkey, RecoveryCode, TotpSecret, User
from sso.services import revocation
from sso.store import factors
from tests.attacks.test_under_way import in_between
from tests.store.test_races import at_once
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.authenticator import Authenticator
from tests.support.factories import make_user
from tests.support.second_factors import (
    FACTORS,
    code_of,
    enrol_passkey,
    is_signed_in,
    scan,
    sign_in_by_passkey,
)

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


# The first second factor against whatever one factor is about to get at the same instant.


def one_factor_sessions(app: Flask, user: User) -> int:
    """Live sessions of this user in which one factor was shown."""
    with app.app_context():
        assert factors.has_any(db.session.connection(), user.id)
        return (
            db.session.scalar(
                select(func.count())
                .select_from(BrowserSession)
                .where(
                    BrowserSession.user_id == user.id,
                    BrowserSession.ended_at.is_(None),
                    BrowserSession.acr != "2",
                )
            )
            or 0
        )


def test_sign_ins_in_a_loop_while_the_owner_enrols(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is patched but two limits, or the loops would end the owner's session."""
    monkeypatch.setattr(passwords, "AT_ONCE", 10)
    monkeypatch.setattr(revocation, "MOST_SESSIONS", 10_000)
    for number in range(6):
        user = make_user(app, f"dana{number}@example.com")
        owner, over, begun = Browser(app), Event(), Event()
        owner.sign_in(user.email)
        secret = scan(owner.open(f"{FACTORS}/totp"))

        def loop(user: User = user, over: Event = over, begun: Event = begun) -> None:
            while not over.is_set():
                thief = Browser(app)
                thief.sign_in(user.email)
                begun.set()

        with ThreadPoolExecutor(3) as pool:
            loops = [pool.submit(loop) for _ in range(3)]
            begun.wait(20)
            page = owner.submit(code=code_of(secret))
            over.set()
        for one in loops:
            one.result()
        assert "recovery codes" in page.html
        assert one_factor_sessions(app, user) == 0, f"round {number}"
        assert is_signed_in(owner)


@pytest.mark.parametrize("kind", ["new", "again"])
def test_a_sign_in_that_saw_no_factor(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It has decided to begin a session, and has not committed yet."""
    owner, thief = Browser(app), Browser(app)
    owner.sign_in()
    secret = scan(owner.open(f"{FACTORS}/totp"))
    if kind == "again":  # a session that goes on under a new identifier
        thief.sign_in()
        thief.open(f"{ORIGIN}{BASE}/sign-in?back=factors")
    else:
        thief.open(f"{ORIGIN}{BASE}/sign-in")
    enrol = lambda: owner.submit(code=code_of(secret))  # noqa: E731
    other = in_between(monkeypatch, factors, "has_any", enrol, after=True)
    thief.sign_in()
    other.join()
    assert "recovery codes" in owner.page.html
    assert one_factor_sessions(app, user) == 0
    assert not is_signed_in(thief)
    assert is_signed_in(owner)


def test_two_browsers_enrol_at_once(app: Flask, user: User) -> None:
    """One of them is first; the other one's sign-in showed one factor, and ends with the rest."""
    for _ in range(3):
        browsers = [Browser(app), Browser(app)]
        secrets = []
        for browser in browsers:
            browser.sign_in()
            secrets.append(scan(browser.open(f"{FACTORS}/totp")))
        with ThreadPoolExecutor(2) as pool:
            pages = list(pool.map(lambda b, s: b.submit(code=code_of(s)), browsers, secrets))
        assert sorted("recovery codes" in page.html for page in pages) == [False, True]
        assert sorted(is_signed_in(browser) for browser in browsers) == [False, True]
        with app.app_context():
            assert db.session.scalar(select(func.count()).select_from(RecoveryCode)) == 10
            factors.remove_all(user.id)
            db.session.commit()


def test_a_passkey_signs_in_while_it_is_removed(app: Flask, user: User) -> None:
    """Either is first; neither waits for the other in a circle."""
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, base_url=f"http://localhost:5000{BASE}")
    owner, spare = Browser(app), Authenticator()
    owner.sign_in()
    enrol_passkey(owner, spare)
    for _ in range(5):
        key, other = Authenticator(), Browser(app)
        enrol_passkey(owner, key)
        owner.open(FACTORS)
        other.open(f"{ORIGIN}{BASE}/sign-in")
        with app.app_context():
            newest = select(Passkey.id).order_by(Passkey.created_at.desc()).limit(1)
            form = {"action": "remove_passkey", "passkey": str(db.session.scalar(newest))}
        with ThreadPoolExecutor(2) as pool:
            signing_in = pool.submit(sign_in_by_passkey, other, key)
            removing = pool.submit(owner.submit, **form)
        assert signing_in.result().path.endswith(("/account", "/sign-in"))
        assert "It was removed" in removing.result().html
        with app.app_context():
            assert db.session.scalar(select(func.count()).select_from(Passkey)) == 1


def test_a_reset_of_factors_while_they_sign_in(app: Flask, user: User) -> None:
    """Anyone who took the account's factors in is out, whichever is first."""
    arguments = ["user", "reset-factors", user.email]
    for _ in range(3):
        owner, other = Browser(app), Browser(app)
        owner.sign_in()
        secret = scan(owner.open(f"{FACTORS}/totp"))
        owner.submit(code=code_of(secret))
        other.sign_in()
        code = code_of(secret, 1)
        with ThreadPoolExecutor(2) as pool:
            signing_in = pool.submit(other.submit, code=code)
            reset = pool.submit(app.test_cli_runner().invoke, args=arguments)
        signing_in.result()
        assert reset.result().exit_code == 0, reset.result().output
        assert not is_signed_in(other)
        assert not is_signed_in(owner)
