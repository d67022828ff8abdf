"""Email addresses: what an operator may register, and what people may give themselves."""

import pytest

from sso.config import email_addresses

PRIVATE = (
    "dana@corp.local",
    "dana@home.lan",
    "dana@example.test",
    "dana@nas.home.arpa",
    "dana@corp.internal",
    "dana@mail.corp",
    "dana@box.home",
    "dana@site.intranet",
    "dana@site.private",
    "dana@hidden.onion",
    "dana@nobody.invalid",
    "dana@mail.localhost",
    "dana@localhost",
    "dana@intranet",
    "dana@mail.123",
)


@pytest.mark.parametrize("address", PRIVATE)
def test_an_operator_knows_the_network(address: str) -> None:
    assert email_addresses.normalized(address.upper()) == address
    assert email_addresses.for_smtp(address) == address
    assert not email_addresses.is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "dana@example.com",
        "dana@local.example.com",
        "dana@mylocal.org",
        "dana@test.de",
        "dana@internal.bücher.de",
        "dana@xn--bcher-kva.de",
    ],
)
def test_names_that_only_look_reserved_are_public(address: str) -> None:
    assert email_addresses.is_public(email_addresses.normalized(address))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dana",
        "dana@",
        "@corp.local",
        "da na@corp.local",
        "dana@corp..local",
        "dana@.local",
        "dana@-corp.local",
        "dana@corp_.local",
        "dana@corp.local\nBcc: x@example.com",
        "dana@" + "a" * 64 + ".local",
        "dana@" + "a." * 200 + "local",
        "dana@[10.0.0.1]",
    ],
)
def test_what_is_no_address_stays_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        email_addresses.normalized(text)
    assert not email_addresses.is_public(text)
