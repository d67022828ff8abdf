"""Default names of new passkeys."""

from collections.abc import Collection

LONGEST = 60  # characters

# Authenticators by AAGUID (WebAuthn §6.5.2): password managers, systems and the most common
# security keys. From the list that their makers maintain at
# https://github.com/passkeydeveloper/passkey-authenticator-aaguids, read in November 2026. No
# attestation proves it: a browser may send any value, or zeros, so it only serves as a name.
AUTHENTICATORS = {
    "08987058-cadc-4b81-b6e1-30de50dcbe96": "Windows Hello",
    "50726f74-6f6e-5061-7373-50726f746f6e": "Proton Pass",
    "531126d6-e717-415c-9320-3d9aa6981239": "Dashlane",
    "53414d53-554e-4700-0000-000000000000": "Samsung Pass",
    "9ddd1817-af5a-4672-a2b9-3e3dd95000a9": "Windows Hello",
    "adce0002-35bc-c60a-648b-0b25f1f05503": "Chrome on Mac",
    "bada5566-a7aa-401f-bd96-45619a55120d": "1Password",
    "d548826e-79b4-db40-a3d8-11116f7e8349": "Bitwarden",
    "ea9b8d66-4d01-1d21-3ce4-b6b48cb575d4": "Google Password Manager",
    "ee882879-721c-4913-9775-3dfcce97072a": "YubiKey 5",
    "fbfc3007-154e-4ecc-8c0b-6e020557d7bd": "Apple Passwords",
    "fdb141b2-5d84-443e-8a35-4698c205a502": "KeePassXC",
}


def clean(name: str) -> str:
    """Return a typed name on one line, without invisible characters, cut; it may be empty."""
    return " ".join("".join(c for c in name if c == " " or c.isprintable()).split())[:LONGEST]


def of(aaguid: str, browser: str) -> str:
    """Return the name of a passkey's authenticator, or else of the browser that requested it."""
    return AUTHENTICATORS.get(aaguid.lower()) or clean(browser)


def distinct(name: str, other_names: Collection[str]) -> str:
    """Return the name, with a number if another passkey of the user has it."""
    folded = {other.casefold() for other in other_names}
    candidate, number = name, 1
    while candidate.casefold() in folded:
        number += 1
        candidate = f"{name[: LONGEST - len(str(number)) - 1].rstrip()} {number}"
    return candidate
