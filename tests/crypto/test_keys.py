"""Signing keys: what they sign, and how they live."""

import json
from collections import Counter
from collections.abc import Callable
from threading import Event, Thread

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey

from sso import context
from sso.crypto import keys
from sso.crypto.keys import ALGORITHMS, JWKS_MAX_AGE, KeyRing
from sso.extensions import db
from sso.jobs.worker import rotate_aged_keys
from sso.models import KeyState, SigningKey
from sso.services.signing_keys import RotationRefused
from sso.store import keys as stored_keys
from tests.conftest import Clock
from tests.support.factories import retire, rotate
from tests.support.processes import SECRET_KEY


@pytest.mark.parametrize("alg", keys.ALGORITHMS)
def test_sign_and_verify(app: Flask, alg: str) -> None:
    with app.app_context():
        ring = context.key_ring()
        token = ring.sign({"sub": "dana"}, alg, "JWT")
        assert ring.verify(token, "JWT") == {"sub": "dana"}
        assert ring.verify(token, "at+jwt") is None
        head, body, signature = token.split(".")
        assert ring.verify(f"{head}.{body[:-2]}xx.{signature}", "JWT") is None
        assert ring.verify(f"{head}.{body}.", "JWT") is None


def test_each_algorithm_has_keys_of_its_own(app: Flask) -> None:
    """A client that looks a key up by its `kid` finds the one algorithm that it is for."""
    with app.app_context():
        published = json.loads(context.key_ring().jwks())["keys"]
        assert Counter(key["alg"] for key in published) == dict.fromkeys(ALGORITHMS, 2)
        assert len({key["kid"] for key in published}) == 2 * len(ALGORITHMS)
        of_rsa = {(key["alg"], key["kty"]) for key in published if "n" in key}
        assert of_rsa == {("RS256", "RSA"), ("PS256", "RSA")}
        token = context.key_ring().sign({"sub": "dana"}, "PS256", "JWT")
        key_set = KeySet.import_key_set({"keys": published})
        assert jwt.decode(token, key_set, algorithms=["PS256"]).claims == {"sub": "dana"}


def test_another_algorithm_with_our_key_is_refused(app: Flask) -> None:
    """The public key as an HMAC secret, and no signature at all."""
    with app.app_context():
        ring = context.key_ring()
        kid = ring.active("RS256").kid
        public = stored_keys.find_signing_key(str(kid))
        assert public is not None
        secret = OctKey.import_key(public.public_jwk)
        header = {"alg": "HS256", "kid": kid, "typ": "JWT"}
        assert ring.verify(jwt.encode(header, {"sub": "x"}, secret), "JWT") is None
        none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJ4In0."
        assert ring.verify(none, "JWT") is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_garbage_is_no_token(app: Flask, text: str) -> None:
    with app.app_context():
        assert context.key_ring().verify(text, "JWT") is None


def test_rotation(clock: Clock, app: Flask, make_app: Callable[..., Flask]) -> None:
    """A client that caches the key set for its whole max-age never meets an unknown key."""
    clock.move(days=400)  # the template's keys were made at the real time
    worker = make_app()
    with app.app_context():
        ring = context.key_ring()
        old = ring.sign({"sub": "dana"}, "ES256", "JWT")
        cached = ring.jwks()
        following = in_state("ES256", KeyState.NEXT)
        assert following is not None
        assert following.kid in cached.decode()
        rotate(SECRET_KEY)
        ring.reload()
        assert ring.active("ES256").kid == following.kid
        assert ring.verify(old, "JWT")
        with pytest.raises(RotationRefused):
            rotate(SECRET_KEY)
        clock.move(seconds=JWKS_MAX_AGE + 20)
        rotate(SECRET_KEY)
        rotate(SECRET_KEY, force=True)
        ring.reload()
        newest = ring.active("ES256").kid
    with worker.app_context():
        assert worker.extensions["sso.keys"].active("ES256").kid == newest
        assert context.key_ring().verify(old, "JWT")


def test_rotation_by_age(clock: Clock, app: Flask) -> None:
    with app.app_context():
        for key in stored_keys.every_signing_key():
            if key.activated_at:
                key.activated_at = clock.now()  # they were made by another clock
        db.session.commit()
        first = in_state("RS256", KeyState.ACTIVE)
        db.session.rollback()
        assert first is not None
        clock.move(days=89)
        assert rotate_aged_keys() == 0
        clock.move(days=2)
        retire_next("RS256")
        assert rotate_aged_keys() == 0  # a cached key set may lack the key that was just made
        clock.move(seconds=JWKS_MAX_AGE + 20)
        assert rotate_aged_keys() == len(ALGORITHMS)
        assert rotate_aged_keys() == 0
        activated = in_state("RS256", KeyState.ACTIVE)
        assert activated is not None
        assert activated.kid != first.kid


def in_state(alg: str, state: KeyState) -> SigningKey | None:
    found = [key for key in stored_keys.every_signing_key() if (key.alg, key.state) == (alg, state)]
    return found[0] if found else None


def retire_next(alg: str) -> None:
    following = in_state(alg, KeyState.NEXT)
    assert following is not None
    retire(following.kid, SECRET_KEY)


def test_a_running_worker_notices(clock: Clock, app: Flask, make_app: Callable[..., Flask]) -> None:
    worker = make_app()
    with worker.app_context():
        before = context.key_ring().active("RS256").kid
    with app.app_context():
        rotate(SECRET_KEY, force=True)
    with worker.app_context():
        assert context.key_ring().active("RS256").kid == before
        clock.move(seconds=11)
        assert context.key_ring().active("RS256").kid != before


def test_nobody_waits_for_the_thread_that_reads_again(clock: Clock, app: Flask) -> None:
    """It may wait for the connection of one that has to sign first."""
    reading, may_read = Event(), Event()
    may_read.set()

    def load() -> list[stored_keys.StoredSigningKey]:
        reading.set()
        assert may_read.wait(10)
        return rows

    with app.app_context():
        rows = stored_keys.stored_signing_keys()
    ring = KeyRing(SECRET_KEY, load=load, keep_published=1)
    before = ring.jwks()
    clock.move(seconds=11)
    may_read.clear()
    reading.clear()
    reader = Thread(target=ring.refresh)
    reader.start()
    try:
        assert reading.wait(10)
        signs = Thread(target=ring.sign, args=({"sub": "dana"}, "ES256", "JWT"), daemon=True)
        signs.start()
        signs.join(5)
        assert not signs.is_alive()
        assert ring.jwks() == before
    finally:
        may_read.set()
        reader.join()


def test_a_retired_key_is_unpublished_when_no_token_of_it_can_live(
    clock: Clock, app: Flask
) -> None:
    with app.app_context():
        ring = context.key_ring()
        old = str(ring.active("RS256").kid)
        rotate(SECRET_KEY, force=True)
        clock.move(hours=1)
        assert old in ring.jwks().decode()
        clock.move(hours=1)
        assert old not in ring.jwks().decode()


def test_retire(app: Flask) -> None:
    with app.app_context():
        following = in_state("ES256", KeyState.NEXT)
        active = in_state("ES256", KeyState.ACTIVE)
        assert following is not None
        assert active is not None
        with pytest.raises(RotationRefused):
            retire(active.kid, SECRET_KEY)
        assert retire(following.kid, SECRET_KEY).state == KeyState.RETIRED
        fresh = in_state("ES256", KeyState.NEXT)
        assert fresh is not None
        assert fresh.kid != following.kid


def test_a_stolen_key_is_taken_off_the_key_set_at_once(app: Flask) -> None:
    with app.app_context():
        ring = context.key_ring()
        token = ring.sign({"sub": "dana"}, "ES256", "JWT")
        stolen = ring.active("ES256").kid
        rotate(SECRET_KEY, force=True)
        retired = [
            key.kid for key in stored_keys.every_signing_key() if key.state == KeyState.RETIRED
        ]
        assert stolen in retired
        assert retire(str(stolen), SECRET_KEY).state == "gone"
        ring.reload()
        assert str(stolen) not in ring.jwks().decode()
        assert ring.verify(token, "JWT") is None


def test_another_secret_key_cannot_unseal(app: Flask) -> None:
    ring = KeyRing("another secret key", load=stored_keys.every_signing_key, keep_published=1)
    with app.app_context(), pytest.raises(keys.KeyUnavailable, match="SSO_SECRET_KEY"):
        ring.active("RS256")
