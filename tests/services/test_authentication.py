"""What a sign-in makes of a session: a new one, or the one that was there before."""

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit
from sso.crypto import passwords
from sso.extensions import db
from sso.flow.request import TWO_FACTORS
from sso.mfa import policy
from sso.mfa.policy import Proof
from sso.models import BrowserSession, Identity, UpstreamSession, User
from sso.services import authentication, revocation
from sso.services.authentication import Browser, NewSecret, SignInEnded
from sso.store import identities, users
from sso.store.sessions import CurrentSession
from tests.conftest import Clock

HERE = Browser("192.0.2.1", "Firefox", is_known=True)
TWO = Proof("pwd otp mfa", TWO_FACTORS)


def begin(
    user: User, proof: Proof = policy.PASSWORD, before: CurrentSession | None = None, **more: Any
) -> NewSecret:
    return authentication.begin(audit.USER, user, HERE, proof, False, before, **more)


def sign_in_elsewhere(user: User, **more: Any) -> UpstreamSession:
    identity = identities.of_user(user.id)
    if not identity:
        identities.add(Identity(user_id=user.id, provider="corp", issuer="i", subject="1"))
        identity = identities.of_user(user.id)
    sign_in = UpstreamSession(identity_id=identity[0].id, amr="fed", **more)
    identities.add_session(sign_in)
    return sign_in


@pytest.mark.parametrize("fate", ["bound", "deleted"])
def test_a_sign_in_that_the_provider_has_ended_begins_nothing(
    app: Flask, user: User, fate: str
) -> None:
    with app.app_context():
        loaded = db.session.get_one(User, user.id)
        sign_in = sign_in_elsewhere(loaded)
        if fate == "bound":
            begin(loaded, upstream=sign_in)
        else:
            db.session.delete(sign_in)
            db.session.flush()
        with pytest.raises(SignInEnded):
            begin(loaded, upstream=sign_in)


@pytest.mark.parametrize("ago", [None, 0, 3600])
@pytest.mark.parametrize("again", [False, True])
def test_when_somebody_authenticated(
    app: Flask, user: User, clock: Clock, ago: int | None, again: bool
) -> None:
    """At the provider, if it says so; a session that goes on is never older than it was."""
    clock.stand_still()
    with app.app_context():
        loaded = db.session.get_one(User, user.id)
        before = begin(loaded).current if again else None
        began = clock.time
        clock.move(minutes=10)
        told = None if ago is None else clock.time - timedelta(seconds=ago)
        sign_in = sign_in_elsewhere(loaded, auth_time=told)
        session = begin(loaded, before=before, upstream=sign_in).current.session
        expected = told or clock.time
        assert session.auth_time == (max(expected, began) if again else expected)


@pytest.mark.parametrize("proof", [policy.PASSWORD, TWO])
def test_a_session_that_goes_on_is_what_the_last_sign_in_proved(
    app: Flask, user: User, clock: Clock, proof: Proof
) -> None:
    clock.stand_still()
    with app.app_context():
        loaded = db.session.get_one(User, user.id)
        first = begin(loaded, TWO)
        session_id, first_end = first.current.session.id, first.current.session.ends_at
        assert first.current.session.second_factor_at == clock.time
        clock.move(minutes=10)
        session = begin(loaded, proof, first.current).current.session
        assert session.id == session_id
        assert (session.amr, session.acr) == tuple(proof)
        assert session.second_factor_at == (clock.time if proof is TWO else None)
        assert session.ends_at
        assert first_end
        assert session.ends_at - first_end == timedelta(minutes=10)


def test_the_oldest_of_too_many_sessions_end(
    app: Flask, user: User, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revocation, "MOST_SESSIONS", 2)
    with app.app_context():
        loaded = db.session.get_one(User, user.id)
        ids = []
        for _ in range(4):
            clock.move(minutes=1)
            ids.append(begin(loaded).current.session.id)
        live = select(BrowserSession.id).where(BrowserSession.ended_at.is_(None))
        assert set(db.session.scalars(live)) == set(ids[-2:])


@pytest.mark.parametrize("meanwhile", ["nothing", "another password", "none", "disabled"])
def test_a_password_that_was_right_a_moment_ago(app: Flask, user: User, meanwhile: str) -> None:
    with app.app_context():
        loaded = db.session.get_one(User, user.id)
        db.session.expunge(loaded)  # as it was read before the slow check
        current = users.find(user.id)
        assert current
        if meanwhile == "another password":
            current.password_hash = passwords.hash_password("x9-another-long-password")
        elif meanwhile == "none":
            current.password_hash = None
        elif meanwhile == "disabled":
            current.disabled_at = current.created_at
        db.session.flush()
        locked = authentication.lock_verified(loaded, "whatever it was", None)
        assert (locked is not None) is (meanwhile == "nothing")
