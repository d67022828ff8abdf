"""What a sign-in has proven: `amr` (RFC 8176) and `acr` (OIDC Core §2)."""

from typing import NamedTuple

from sso.flow.request import ONE_FACTOR, TWO_FACTORS

OTP = "otp"  # authenticator apps and recovery codes: one-time passwords both
_ORDER = ("pwd", "fed", "otp", "hwk", "swk", "user", "mfa")


class Proof(NamedTuple):
    """The methods that were used, with spaces between them, and the level that they reach."""

    amr: str
    acr: str


PASSWORD = Proof("pwd", ONE_FACTOR)


def passkey_methods(is_synced: bool) -> str:
    """A key in hardware or, copied between devices, in software; a person touched it."""
    return "swk user" if is_synced else "hwk user"


def of_passkey_alone(is_synced: bool) -> Proof:
    """A passkey with user verification is two in one: the device, and a PIN or a finger."""
    return Proof(f"{passkey_methods(is_synced)} mfa", TWO_FACTORS)


def of_upstream(methods: str, has_two_factors: bool) -> Proof:
    """What an identity provider has seen; two factors where the operator trusts it with them."""
    return Proof(f"{methods} mfa", TWO_FACTORS) if has_two_factors else Proof(methods, ONE_FACTOR)


def with_second(first: str, second: str) -> Proof:
    """A second factor after another one, each given by its methods."""
    used = {*first.split(), *second.split(), "mfa"}
    return Proof(" ".join(name for name in _ORDER if name in used), TWO_FACTORS)
