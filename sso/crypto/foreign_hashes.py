"""Password hashes of other systems: checked until the first sign-in replaces them by Argon2id.

All are stored in one format, `$scheme$parameters$salt$hash`. The parameters are bounded when a hash
is imported and again when it is checked. A function that reads another system's format returns
`None` for an account without a password, and raises `Refused` for a hash that cannot be checked. No
message contains a part of the hash.

A wrong password must cost the same for every account, or the time of the answer would reveal which
accounts exist, and which have an old password. So `spend` takes as long as one check by each method
of the imported passwords.
"""

import base64
import binascii
import hashlib
import hmac
import re
import time
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import argon2
import bcrypt
from argon2.exceptions import Argon2Error

MOST = 200  # characters; the length of the column
# The most methods that are accepted of memory-hard schemes: their costs cannot be equalized.
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
_LONGEST_BCRYPT = 72  # bytes of a password; bcrypt ignores the rest
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
        """The scheme and the parameters, which determine the cost of a check."""
        return f"${self.scheme}${self.parameters}"

    @property
    def kind(self) -> str:
        return "argon2" if self.scheme.startswith("argon2") else self.scheme.partition("-")[0]

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {name: int(value) for name, value in _PAIR.findall(self.parameters)}


def parse(stored: str) -> Hash:
    """Parse a hash in the stored format. Raises `Refused`."""
    match = _FORMAT.fullmatch(stored) if len(stored) <= MOST else None
    if match is None:
        raise Refused("the password hash is in an unknown format")
    scheme, parameters, salt, digest = match.groups()
    hash_ = Hash(scheme, parameters[1:], salt, digest)
    if hash_.scheme not in SCHEMES:
        raise Refused(f"{scheme} is not supported")
    if hash_.parameters != _PARAMETERS[hash_.kind].format_map(defaultdict(int, hash_.numbers)):
        raise Refused(f"the parameters of {scheme} are not complete")
    if reason := _BOUNDS[hash_.kind](hash_.numbers):
        raise Refused(f"{scheme}: {reason}")
    if hash_.kind == "bcrypt":
        if not (_BCRYPT_SALT.fullmatch(salt) and _BCRYPT_HASH.fullmatch(digest)):
            raise Refused("bcrypt: the salt or the hash is not complete")
    elif not (1 <= len(decoded(salt)) <= 64 and 16 <= len(decoded(digest)) <= 64):
        raise Refused(f"{scheme}: the salt or the hash has the wrong length")
    elif hash_.kind == "argon2" and len(decoded(salt)) < 8:
        raise Refused(f"{scheme}: the salt is shorter than 8 bytes")
    return hash_


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """Decode the text of `encoded`. Raises `Refused`."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise Refused("the salt or the hash is not base64") from None


def method_of(stored: str | None) -> str | None:
    """Return the method of a stored hash; `None` if the hash cannot be checked here."""
    try:
        return parse(stored).method if stored else None
    except Refused:
        return None


def verify(password: str, stored: str) -> bool:
    """Return whether the password is the stored one; False if the hash cannot be checked."""
    # HMAC pads its key with NULs, and C ends texts with one: other passwords would match.
    has_nul, typed = "\0" in password, password.replace("\0", "-")
    try:
        hash_ = parse(stored)
        return _CHECKS[hash_.kind](hash_, typed) and not has_nul
    except ValueError:  # `Refused`, or raised by the library
        return False


def is_memory_hard(method: str) -> bool:
    return method.startswith(("$argon2", "$scrypt"))


def spend(methods: Collection[str], checked_method: str | None) -> None:
    """Work as long as one check by each of these methods takes, except one that is done already.

    Several methods of PBKDF2, or of bcrypt, cost together as much as the most expensive of them.
    """
    ladders: defaultdict[str, int] = defaultdict(int)
    checked_step = _step(checked_method) if checked_method else None
    for method in methods:
        if step := _step(method):
            ladders[step[0]] = max(ladders[step[0]], step[1])
        elif method != checked_method:
            _check_nothing(method)
    for ladder, highest in ladders.items():
        at = checked_step[1] if checked_step and checked_step[0] == ladder else None
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

    bcrypt has 2 to the power of its cost of rounds, PBKDF2 has one for each iteration.
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
    """Return the ladder of costs that a method is on, and its cost."""
    _, scheme, parameters = method.split("$", 2)
    if is_memory_hard(method):
        return None
    return scheme.removesuffix("-sha256") if scheme.startswith("bcrypt") else scheme, int(
        parameters.partition("=")[2]
    )


def _check_nothing(method: str) -> None:
    verify("", f"{method}${encoded(b'salt' * 4)}${encoded(bytes(32))}")


def _bytes(password: str) -> bytes:
    # As it was typed: other systems do not normalize, except the one with "nfkc".
    return password.encode("utf-8", "surrogatepass")


def _argon2(hash_: Hash, password: str) -> bool:
    variant = {"argon2i": argon2.Type.I, "argon2d": argon2.Type.D, "argon2id": argon2.Type.ID}
    try:
        return argon2.low_level.verify_secret(
            str(hash_).encode(), _bytes(password), variant[hash_.scheme]
        )
    except Argon2Error:
        return False


def _bcrypt(hash_: Hash, password: str) -> bool:
    typed = _bytes(password)
    if hash_.scheme == "bcrypt-sha256":
        typed = hashlib.sha256(typed).hexdigest().encode()
    expected = f"$2b${hash_.numbers['r']:02}${hash_.salt}{hash_.digest}"
    return bcrypt.checkpw(typed[:_LONGEST_BCRYPT], expected.encode())


def _pbkdf2(hash_: Hash, password: str) -> bool:
    expected, digest = decoded(hash_.digest), _DIGESTS[hash_.scheme]
    key = hashlib.pbkdf2_hmac(
        digest, _bytes(password), decoded(hash_.salt), hash_.numbers["i"], len(expected)
    )
    return hmac.compare_digest(key, expected)


def _scrypt(hash_: Hash, password: str) -> bool:
    if hash_.scheme == "scrypt-nfkc":
        password = unicodedata.normalize("NFKC", password)
    expected, numbers = decoded(hash_.digest), hash_.numbers
    key = hashlib.scrypt(
        _bytes(password), salt=decoded(hash_.salt), n=1 << numbers["ln"], r=numbers["r"],
        p=numbers["p"], maxmem=128 * _MIB, dklen=len(expected),
    )  # fmt: skip
    return hmac.compare_digest(key, expected)


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


_MOST_TEXT = 1000  # characters
# PBKDF2 computes the key in independent blocks of the digest's length: one is enough to compare.
_BLOCKS = {"sha1": 20, "sha256": 32, "sha512": 64}
_WEAK = re.compile(r"\{?((?:unsalted_)?(?:md5|s?sha[0-9]{0,3}|ssha|smd5)|crypt)[$}]", re.IGNORECASE)
_CRYPT = {"$1$": "md5-crypt", "$5$": "sha256-crypt", "$6$": "sha512-crypt", "$P$": "phpass",
          "$H$": "phpass", "$y$": "yescrypt", "$2x$": "bcrypt 2x", "$2$": "bcrypt 2"}  # fmt: skip
_SUPPORTED = "argon2, bcrypt, PBKDF2 and scrypt are"
BETTER_AUTH = re.compile(r"([0-9a-f]{16,128}):([0-9a-f]{128})")


def from_text(text: str) -> str | None:
    """Convert a hash from the notation of PHC, crypt, passlib or Django."""
    if not text or text.startswith("!"):  # no password, in Django and in shadow files
        return None
    if len(text) > _MOST_TEXT:
        raise Refused(f"the password hash is longer than {_MOST_TEXT} characters")
    if text[:4] in ("$2a$", "$2b$", "$2y$"):
        return _from_bcrypt(text)
    if text.startswith(("$argon2", "argon2$argon2")):
        return _stored(_with_version(text if text[0] == "$" else text[6:]))
    for prefix, convert in _DJANGO.items():
        if text.startswith(prefix):
            return convert(text[len(prefix) :])
    if text.startswith(("$pbkdf2", "$scrypt", "$bcrypt")):
        return _phc(text)
    raise Refused(f"{_kind(text)} is not supported; {_SUPPORTED}")


def from_better_auth(text: str) -> str | None:
    """Convert `salt:key` in hexadecimal digits; the digits of the salt are the salt."""
    match = BETTER_AUTH.fullmatch(text)
    if match is None:  # another function, by the option `password.hash`
        return from_text(text)
    salt, key = match.groups()
    return _join("$scrypt-nfkc$ln=14,r=16,p=1", salt.encode(), bytes.fromhex(key))


def from_keycloak(secret: Mapping[str, Any], data: Mapping[str, Any]) -> str | None:
    """Convert the `secretData` and `credentialData` of a credential of the type "password"."""
    algorithm, more = data.get("algorithm"), data.get("additionalParameters") or {}
    rounds = data.get("hashIterations")
    salt, value = secret.get("salt"), secret.get("value")
    if not isinstance(salt, str) or not isinstance(value, str) or not isinstance(more, Mapping):
        raise Refused("the credential has no salt and value")
    if len(salt) + len(value) > _MOST_TEXT:
        raise Refused("the salt or the hash is too long")
    if isinstance(rounds, bool) or not isinstance(rounds, int):
        raise Refused("hashIterations is not a number")
    raw = decoded(salt.rstrip("=")), decoded(value.rstrip("="))
    if algorithm == "argon2":
        variant, version = _first(more, "type", "id"), _first(more, "version", "1.3")
        memory, lanes = _first(more, "memory", "7168"), _first(more, "parallelism", "1")
        number = {"1.0": 16, "1.3": 19}.get(version)
        return _join(f"$argon2{variant}$v={number}$m={memory},t={rounds},p={lanes}", *raw)
    digests = {"pbkdf2": "sha1", "pbkdf2-sha256": "sha256", "pbkdf2-sha512": "sha512"}
    if not isinstance(algorithm, str) or algorithm not in digests:
        raise Refused(f"{_name(algorithm)} is not supported; {_SUPPORTED}")
    return _from_pbkdf2(digests[algorithm], rounds, *raw)


def to_keycloak(stored: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return `secretData` and `credentialData` of a stored hash; `None` if Keycloak cannot check
    it. Keycloak has padded base64.
    """
    try:
        hash_ = parse(stored)
    except Refused:
        return None
    numbers = hash_.numbers
    if hash_.kind == "argon2":
        version = {16: "1.0", 19: "1.3"}.get(int(hash_.parameters[2:].partition("$")[0]))
        algorithm, rounds = "argon2", numbers["t"]
        more = {
            "hashLength": len(decoded(hash_.digest)), "memory": numbers["m"],
            "type": hash_.scheme.removeprefix("argon2"), "version": version,
            "parallelism": numbers["p"],
        }  # fmt: skip
    elif hash_.scheme in _DIGESTS:
        algorithm, rounds, more = hash_.scheme.removesuffix("-sha1"), numbers["i"], {}
    else:
        return None
    value, salt = (base64.b64encode(decoded(part)).decode() for part in (hash_.digest, hash_.salt))
    parameters = {name: [str(number)] for name, number in more.items()}
    return (
        {"value": value, "salt": salt, "additionalParameters": {}},
        {"hashIterations": rounds, "algorithm": algorithm, "additionalParameters": parameters},
    )


def from_auth0(custom: Mapping[str, Any]) -> str | None:
    """Convert a `custom_password_hash` in the format of Auth0's bulk import."""
    algorithm, hash_ = custom.get("algorithm"), custom.get("hash")
    typed = custom.get("password")
    if not isinstance(hash_, Mapping) or not isinstance(value := hash_.get("value"), str):
        raise Refused("custom_password_hash has no hash.value")
    encoding = typed.get("encoding", "utf8") if isinstance(typed, Mapping) else "utf8"
    if encoding not in ("utf8", "ascii"):
        raise Refused("passwords that are encoded otherwise than in UTF-8 are not supported")
    if algorithm in ("bcrypt", "argon2", "pbkdf2"):
        prefix = "$2" if algorithm == "bcrypt" else f"${algorithm}"
        if value.startswith(prefix):
            return from_text(value)
        raise Refused(f"{algorithm}: hash.value is not in the PHC format")
    if algorithm != "scrypt":
        raise Refused(f"{_name(algorithm)} is not supported; {_SUPPORTED}")
    salt = custom.get("salt")
    if not isinstance(salt, Mapping) or not isinstance(salt.get("value"), str):
        raise Refused("scrypt: there is no salt.value")
    numbers = [custom.get(name) for name in ("cost", "blockSize", "parallelization")]
    numbers = [number or usual for number, usual in zip(numbers, (16384, 8, 1), strict=True)]
    if not all(isinstance(number, int) for number in numbers):
        raise Refused("scrypt: cost, blockSize and parallelization are not numbers")
    key = _binary(value, hash_.get("encoding"))
    return _from_scrypt(numbers, _binary(salt["value"], salt.get("encoding", "utf8")), key)


def _from_bcrypt(text: str, scheme: str = "bcrypt") -> str:
    match = re.fullmatch(r"\$2[aby]\$([0-9]{2})\$([A-Za-z0-9./]{22})([A-Za-z0-9./]{31})", text)
    if match is None:
        raise Refused("bcrypt: the hash is not complete")
    cost, salt, digest = match.groups()
    return _stored(f"${scheme}$r={int(cost)}${salt}${digest}")


def _django_pbkdf2(digest: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        iterations, salt, value = _parts(text, 3)
        return _from_pbkdf2(digest, _number(iterations), salt.encode(), decoded(value.rstrip("=")))

    return convert


def _django_scrypt(text: str) -> str:
    cost, salt, block, lanes, value = _parts(text, 5)
    numbers = [_number(parameter) for parameter in (cost, block, lanes)]
    return _from_scrypt(numbers, salt.encode(), decoded(value.rstrip("=")))


_DJANGO: Mapping[str, Callable[[str], str]] = {
    "pbkdf2_sha1$": _django_pbkdf2("sha1"),
    "pbkdf2_sha256$": _django_pbkdf2("sha256"),
    "pbkdf2_sha512$": _django_pbkdf2("sha512"),
    "bcrypt$": _from_bcrypt,
    "bcrypt_sha256$": lambda text: _from_bcrypt(text, "bcrypt-sha256"),
    "scrypt$": _django_scrypt,
}


def _phc(text: str) -> str:
    """Convert the notation of PHC, or that of passlib: "." for "+", and only the iterations."""
    _, scheme, numbers, salt, digest = _parts(text, 5)
    if scheme.startswith("bcrypt"):
        return _stored(text)
    pairs = dict(re.findall(r"([a-z]{1,2})=([0-9]{1,9})", numbers))
    raw = [decoded(part.replace(".", "+").rstrip("=")) for part in (salt, digest)]
    if scheme.startswith("scrypt"):
        return _join(f"${scheme}$ln={pairs.get('ln')},r={pairs.get('r')},p={pairs.get('p')}", *raw)
    hash_name = "sha1" if scheme == "pbkdf2" else scheme.removeprefix("pbkdf2-")
    if hash_name not in _BLOCKS:
        raise Refused(f"{_kind(text)} is not supported; {_SUPPORTED}")
    return _from_pbkdf2(hash_name, _number(pairs.get("i", numbers)), *raw)


def _from_pbkdf2(digest: str, iterations: int, salt: bytes, key: bytes) -> str:
    return _join(f"$pbkdf2-{digest}$i={iterations}", salt, key[: _BLOCKS[digest]])


def _from_scrypt(numbers: Sequence[Any], salt: bytes, key: bytes) -> str:
    cost, block, lanes = numbers
    if cost < 2 or cost & (cost - 1):
        raise Refused("scrypt: N is not a power of two")
    return _join(f"$scrypt$ln={cost.bit_length() - 1},r={block},p={lanes}", salt, key)


def _with_version(text: str) -> str:
    # Without a version, it is the first one.
    return text if "$v=" in text else re.sub(r"^(\$argon2[a-z]+)\$", r"\1$v=16$", text)


def _join(method: str, salt: bytes, key: bytes) -> str:
    return _stored(f"{method}${encoded(salt)}${encoded(key)}")


def _stored(text: str) -> str:
    if len(text) > MOST:
        raise Refused("the salt and the hash are too long")
    return str(parse(text))


def _parts(text: str, count: int) -> list[str]:
    parts = text.split("$")
    if len(parts) != count:
        raise Refused("the password hash is not complete")
    return parts


def _number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise Refused("a parameter of the password hash is not a number")
    return int(text)


def _binary(text: str, encoding: Any) -> bytes:
    try:
        if encoding == "hex":
            return bytes.fromhex(text)
        return decoded(text.rstrip("=")) if encoding == "base64" else text.encode()
    except (ValueError, UnicodeError):
        raise Refused("the salt or the hash is not in its encoding") from None


def _first(parameters: Mapping[str, Any], name: str, default: str) -> str:
    value = parameters.get(name, [default])
    text = str(value[0]) if isinstance(value, list) and value else ""
    return text if re.fullmatch(r"[0-9a-z.]{1,9}", text) else "?"


def _kind(text: str) -> str:
    for prefix, name in _CRYPT.items():
        if text.startswith(prefix):
            return name
    match = _WEAK.match(text)
    return match[1] if match else "this kind of password hash"


def _name(value: Any) -> str:
    return (
        value
        if isinstance(value, str) and re.fullmatch("[a-z0-9-]{1,30}", value)
        else "the algorithm"
    )
