"""Random secrets: how much chance is in one, and that nearly equal ones are others."""

from base64 import urlsafe_b64decode

import pytest

from sso.crypto import secrets


@pytest.mark.parametrize("prefix", ["sso_ac_", ""])
def test_how_much_chance(prefix: str) -> None:
    made = {secrets.make_secret(prefix) for _ in range(100)}
    assert len(made) == 100
    for one in made:
        assert one.startswith(prefix)
        assert len(urlsafe_b64decode(one.removeprefix(prefix) + "=")) == 32


def test_a_digest_is_of_one_secret() -> None:
    secret = secrets.make_secret(secrets.SESSION)
    stored = secrets.digest(secret)
    assert secret not in stored
    assert secrets.matches(secret, stored)
    for wrong in (secret[:-1], secret + "x", secret.upper(), "", stored, "é", "\ud800"):
        assert not secrets.matches(wrong, stored)
    assert not secrets.matches(secret, "")


def test_a_successor_depends_on_the_secret_and_the_key() -> None:
    successor = secrets.derive_secret("p_", "secret", b"key")
    assert successor == secrets.derive_secret("p_", "secret", b"key")
    assert successor.startswith("p_")
    assert len(urlsafe_b64decode(successor.removeprefix("p_") + "=")) == 32
    assert successor != secrets.derive_secret("p_", "secret", b"kez")
    assert successor != secrets.derive_secret("p_", "secreu", b"key")


def test_equal() -> None:
    assert secrets.is_equal("a", "a")
    assert secrets.is_equal("é", "é")
    for one, other in (("a", "b"), ("a", "A"), ("a", "aa"), ("a", ""), ("é", "e")):
        assert not secrets.is_equal(one, other)
