"""Password hashes of other systems: checked until the first sign-in replaces them by Argon2id.

Each is stored in one format, `$scheme$parameters$salt$hash`; for its origins see `hash_formats`.
The parameters are bounded when a hash is imported and again when it is checked.

A wrong password must cost the same for everybody, or its time would say who exists, and who has an
old password. So `spend` adds what the methods of all imported passwords cost together.
"""

import base64
import binascii
import hashlib
import hmac
import re
import time
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import argon2.low_level
import bcrypt
from argon2.exceptions import Argon2Error

MOST = 200  # characters, as the column has
# Schemes whose methods cannot be brought to one cost; so many methods of theirs are accepted.
MOST_MEMORY_HARD = 4

_KIB, _MIB = 1024, 1024 * 1024
_PARAMETERS = {
    "argon2": "v={v}$m={m},t={t},p={p}", "bcrypt": "r={r}", "pbkdf2": "i={i}",
    "scrypt": "ln={ln},r={r},p={p}",
}  # fmt: skip
_DIGESTS = {"pbkdf2-sha1": "sha1", "pbkdf2-sha256": "sha256", "pbkdf2-sha512": "sha512"}
SCHEMES = (
    *("argon2i", "argon2d", "argon2id", "bcrypt", "bcrypt-sha256", *_DIGESTS),
    *("scrypt", "scrypt-nfkc"),
)
_FORMAT = re.compile(
    r"\$([a-z0-9-]+)((?:\$v=\d+)?\$[a-z0-9,=]+)\$([A-Za-z0-9+/.]+)\$([A-Za-z0-9+/.]+)"
)
_PAIR = re.compile(r"([a-z]{1,2})=([0-9]{1,9})")
_BCRYPT_SALT, _BCRYPT_HASH = (
    re.compile(r"[A-Za-z0-9./]{21}[.Oeu]"),
    re.compile(r"[A-Za-z0-9./]{31}"),
)
_LONGEST_BCRYPT = 72  # bytes of a password that bcrypt looks at
_DUMMY = b"a password that nobody has"


class Refused(ValueError):
    """The hash cannot be checked here; `str()` says why, without any part of it."""


@dataclass(frozen=True)
class Hash:
    """A stored hash; `salt` and `digest` are still encoded."""

    scheme: str
    parameters: str
    salt: str
    digest: str

    def __str__(self) -> str:
        return f"{self.method}${self.salt}${self.digest}"

    @property
    def method(self) -> str:
        """All that decides what a check costs."""
        return f"${self.scheme}${self.parameters}"

    @property
    def kind(self) -> str:
        return "argon2" if self.scheme.startswith("argon2") else self.scheme.partition("-")[0]

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {name: int(value) for name, value in _PAIR.findall(self.parameters)}


def parse(stored: str) -> Hash:
    """A hash in the stored format. Raises `Refused`."""
    found = _FORMAT.fullmatch(stored) if len(stored) <= MOST else None
    if found is None:
        raise Refused("the password hash is in an unknown format")
    scheme, parameters, salt, digest = found.groups()
    made = Hash(scheme, parameters[1:], salt, digest)
    if made.scheme not in SCHEMES:
        raise Refused(f"{scheme} is not supported")
    if made.parameters != _PARAMETERS[made.kind].format_map(defaultdict(int, made.numbers)):
        raise Refused(f"the parameters of {scheme} are not complete")
    if reason := _BOUNDS[made.kind](made.numbers):
        raise Refused(f"{scheme}: {reason}")
    if made.kind == "bcrypt":
        if not (_BCRYPT_SALT.fullmatch(salt) and _BCRYPT_HASH.fullmatch(digest)):
            raise Refused("bcrypt: the salt or the hash is not complete")
    elif not (1 <= len(decoded(salt)) <= 64 and 16 <= len(decoded(digest)) <= 64):
        raise Refused(f"{scheme}: the salt or the hash has the wrong length")
    elif made.kind == "argon2" and len(decoded(salt)) < 8:
        raise Refused(f"{scheme}: the salt is shorter than 8 bytes")
    return made


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """What `encoded` made. Raises `Refused`."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise Refused("the salt or the hash is not base64") from None


def method_of(stored: str | None) -> str | None:
    """The method of a stored hash, `None` if it is none that can be checked here."""
    try:
        return parse(stored).method if stored else None
    except Refused:
        return None


def verify(password: str, stored: str) -> bool:
    """Whether the password is the stored one. A hash that cannot be checked has none."""
    # HMAC fills its key with NULs, and C ends its texts with one: other passwords would match.
    is_odd, typed = "\0" in password, password.replace("\0", "-")
    try:
        return _CHECKS[(known := parse(stored)).kind](known, typed) and not is_odd
    except ValueError:  # `Refused`, or by the library
        return False


def is_memory_hard(method: str) -> bool:
    return method.startswith(("$argon2", "$scrypt"))


def spend(methods: Collection[str], done: str | None) -> None:
    """Work as long as one check by each of these methods takes; `done`: the one done already.

    Of PBKDF2 and bcrypt, the costs of several methods are brought to that of the highest.
    """
    ladders: defaultdict[str, int] = defaultdict(int)
    own = _step(done) if done else None
    for method in methods:
        if step := _step(method):
            ladders[step[0]] = max(ladders[step[0]], step[1])
        elif method != done:
            _check_nothing(method)
    for ladder, highest in ladders.items():
        at = own[1] if own and own[0] == ladder else None
        if ladder == "bcrypt":  # from cost c, the costs c, c + 1 ... add up to the highest
            for cost in range(at, highest) if at is not None else (highest,):
                bcrypt.hashpw(_DUMMY, f"$2b${cost:02}${'.' * 22}".encode())
        elif rest := highest - (at or 0):
            hashlib.pbkdf2_hmac(_DIGESTS[ladder], _DUMMY, b"salt" * 4, max(rest, 1))


def seconds(methods: Collection[str]) -> float:
    """Return the CPU time that `spend` takes for these methods, measured on this machine."""
    total = 0.0
    ladders: dict[str, int] = {}
    for method in methods:
        if step := _step(method):
            ladder, cost = step
            ladders[ladder] = max(ladders.get(ladder, 0), cost)
        else:
            total += _measured(method)
    for ladder, cost in ladders.items():
        total += _of_round(ladder) * (2**cost if ladder == "bcrypt" else cost)
    return total


@cache
def _of_round(ladder: str) -> float:
    """Measure one round in seconds.

    bcrypt has 2 to the power of its cost of them, PBKDF2 as many as it has iterations.
    """
    if ladder == "bcrypt":
        return _measured("$bcrypt$r=8") / 2**8
    return _measured(f"${ladder}$i=50000") / 50_000


@cache
def _measured(method: str) -> float:
    return min(_once(method), _once(method))  # the first run may take longer


def _once(method: str) -> float:
    began = time.process_time()
    spend([method], None)
    return time.process_time() - began


def _step(method: str) -> tuple[str, int] | None:
    """The ladder of costs that a method is on, and its cost."""
    _, scheme, parameters = method.split("$", 2)
    if is_memory_hard(method):
        return None
    return scheme.removesuffix("-sha256") if scheme.startswith("bcrypt") else scheme, int(
        parameters.partition("=")[2]
    )


def _check_nothing(method: str) -> None:
    verify("", f"{method}${encoded(b'salt' * 4)}${encoded(bytes(32))}")


def _bytes(password: str) -> bytes:
    # As it was typed: other systems don't normalize, but for the one with "nfkc".
    return password.encode("utf-8", "surrogatepass")


def _argon2(known: Hash, password: str) -> bool:
    variant = {"argon2i": argon2.Type.I, "argon2d": argon2.Type.D, "argon2id": argon2.Type.ID}
    try:
        return argon2.low_level.verify_secret(
            str(known).encode(), _bytes(password), variant[known.scheme]
        )
    except Argon2Error:
        return False


def _bcrypt(known: Hash, password: str) -> bool:
    typed = _bytes(password)
    if known.scheme == "bcrypt-sha256":
        typed = hashlib.sha256(typed).hexdigest().encode()
    expected = f"$2b${known.numbers['r']:02}${known.salt}{known.digest}"
    return bcrypt.checkpw(typed[:_LONGEST_BCRYPT], expected.encode())


def _pbkdf2(known: Hash, password: str) -> bool:
    expected, digest = decoded(known.digest), _DIGESTS[known.scheme]
    found = hashlib.pbkdf2_hmac(
        digest, _bytes(password), decoded(known.salt), known.numbers["i"], len(expected)
    )
    return hmac.compare_digest(found, expected)


def _scrypt(known: Hash, password: str) -> bool:
    if known.scheme == "scrypt-nfkc":
        password = unicodedata.normalize("NFKC", password)
    expected, numbers = decoded(known.digest), known.numbers
    found = hashlib.scrypt(
        _bytes(password), salt=decoded(known.salt), n=1 << numbers["ln"], r=numbers["r"],
        p=numbers["p"], maxmem=128 * _MIB, dklen=len(expected),
    )  # fmt: skip
    return hmac.compare_digest(found, expected)


_CHECKS: Mapping[str, Callable[[Hash, str], bool]] = {
    "argon2": _argon2, "bcrypt": _bcrypt, "pbkdf2": _pbkdf2, "scrypt": _scrypt,
}  # fmt: skip


def _argon2_bounds(n: Mapping[str, int]) -> str | None:
    if n["v"] not in (16, 19):
        return "its version is unknown"
    if not (8 * n["p"] <= n["m"] <= 128 * _KIB):
        return "the memory is not between 8 KiB for each lane and 128 MiB"
    if not (1 <= n["p"] <= 16 and n["t"] >= 1 and n["m"] * n["t"] <= 512 * _KIB):
        return "more than 16 lanes, or more work than 4 passes of 128 MiB"
    return None


def _scrypt_bounds(n: Mapping[str, int]) -> str | None:
    if not (1 <= n["ln"] <= 20 and 1 <= n["r"] <= 32 and 1 <= n["p"] <= 16):
        return "N is above 2^20, r above 32 or p above 16"
    if (
        n["ln"] >= 16 * n["r"]
        or n["r"] << n["ln"] > 512 * _KIB
        or n["r"] * n["p"] << n["ln"] > _MIB
    ):
        return "N is too large for r (RFC 7914 §6), it takes over 64 MiB, or N·r·p is above 2^20"
    return None


_BOUNDS: Mapping[str, Callable[[Mapping[str, int]], str | None]] = {
    "argon2": _argon2_bounds,
    "scrypt": _scrypt_bounds,
    "bcrypt": lambda n: None if 4 <= n["r"] <= 14 else "the cost is not between 4 and 14",
    "pbkdf2": lambda n: (
        None if 1 <= n["i"] <= 2_000_000 else "not between 1 and 2,000,000 iterations"
    ),
}
