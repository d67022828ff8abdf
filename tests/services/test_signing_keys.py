"""Signing keys of which some, or none, open with the secret key."""

from collections.abc import Callable

import pytest
from flask import Flask

from sso import audit, context, database
from sso.crypto import keys
from sso.crypto.keys import KeyUnavailable
from sso.extensions import db
from sso.models import KeyState
from sso.services import signing_keys
from sso.services.signing_keys import RotationRefused
from sso.store import keys as stored

OTHER = "another secret key, of another database"


def close(*states: str) -> None:
    """Encrypt the ES256 keys in these states with another secret key."""
    for row in stored.every_signing_key():
        if row.alg == "ES256" and row.state in states:
            row.sealed_private_jwk = keys.generate("ES256", OTHER).sealed_private_jwk


def is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except RotationRefused:
        return True
    return False


@pytest.mark.parametrize("state", [KeyState.ACTIVE, KeyState.NEXT])
def test_one_key_that_does_not_open(app: Flask, state: KeyState) -> None:
    """It keeps the keys from rotating, but not other secrets from being encrypted again."""
    with app.app_context():
        secret_keys = context.settings().secret_keys
        signing_keys.require_any_open(secret_keys)
        close(state)
        signing_keys.require_any_open(secret_keys)

        def rotate(discard: bool = False) -> None:
            signing_keys.rotate(audit.SYSTEM, secret_keys, force=True, discard=discard)

        assert is_refused(rotate)
    with app.app_context():
        close(state)
        assert not is_refused(lambda: rotate(discard=True))


def test_keys_of_saml_sign_and_verify_no_tokens(app: Flask) -> None:
    with app.app_context():
        ring = context.key_ring()
        before = ring.jwks()
        signing_keys.ensure_saml(context.settings().secret_keys)
        db.session.commit()
        of_saml = stored.saml_keys(database.session_connection())
        assert {row.state for row in of_saml} == {KeyState.ACTIVE, KeyState.NEXT}
        ring.reload()
        assert ring.jwks() == before
        assert not {row.kid for row in of_saml} & {row.kid for row in stored.stored_signing_keys()}
        with pytest.raises(KeyUnavailable, match=keys.NO_ACTIVE_KEY):
            ring.active(keys.SAML)


def test_no_key_opens(app: Flask) -> None:
    with app.app_context():
        assert is_refused(lambda: signing_keys.require_any_open(OTHER))
        assert is_refused(lambda: signing_keys.rotate(audit.SYSTEM, OTHER, force=True))
        assert is_refused(lambda: signing_keys.ensure(OTHER)) is False  # none is missing
        for row in stored.every_signing_key():
            row.state = KeyState.RETIRED
        signing_keys.require_any_open(OTHER)  # there is nothing that has to open
