"""Random secrets: how much chance is in one, and that nearly equal ones are others."""

from base64 import urlsafe_b64decode

import pytest

from sso.crypto import digests


@pytest.mark.parametrize("prefix", ["sso_ac_", ""])
def test_how_much_chance(prefix: str) -> None:
    made = {digests.make(prefix) for _ in range(100)}
    assert len(made) == 100
    for one in made:
        assert one.startswith(prefix)
        assert len(urlsafe_b64decode(one.removeprefix(prefix) + "=")) == 32


def test_a_digest_is_of_one_secret() -> None:
    secret = digests.make(digests.SESSION)
    stored = digests.digest(secret)
    assert secret not in stored
    assert digests.matches(secret, stored)
    for wrong in (secret[:-1], secret + "x", secret.upper(), "", stored, "é", "\ud800"):
        assert not digests.matches(wrong, stored)
    assert not digests.matches(secret, "")


def test_a_successor_depends_on_the_secret_and_the_key() -> None:
    successor = digests.derive("p_", "secret", b"key")
    assert successor == digests.derive("p_", "secret", b"key")
    assert successor.startswith("p_")
    assert len(urlsafe_b64decode(successor.removeprefix("p_") + "=")) == 32
    assert successor != digests.derive("p_", "secret", b"kez")
    assert successor != digests.derive("p_", "secreu", b"key")


def test_equal() -> None:
    assert digests.equal("a", "a")
    assert digests.equal("é", "é")
    for one, other in (("a", "b"), ("a", "A"), ("a", "aa"), ("a", ""), ("é", "e")):
        assert not digests.equal(one, other)
