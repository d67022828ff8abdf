"""Password hashes as other systems write them, turned into the stored format.

Every function returns `None` for an account without a password, and raises `Refused` for a hash
that cannot be checked. No message holds a part of the hash.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sso.crypto.foreign_hashes import MOST, Refused, decoded, encoded, parse

_MOST_TEXT = 1000  # characters
# PBKDF2 makes the key in blocks of the digest's length, each by itself: one is enough to compare.
_BLOCKS = {"sha1": 20, "sha256": 32, "sha512": 64}
_WEAK = re.compile(r"\{?((?:unsalted_)?(?:md5|s?sha[0-9]{0,3}|ssha|smd5)|crypt)[$}]", re.IGNORECASE)
_CRYPT = {"$1$": "md5-crypt", "$5$": "sha256-crypt", "$6$": "sha512-crypt", "$P$": "phpass",
          "$H$": "phpass", "$y$": "yescrypt", "$2x$": "bcrypt 2x", "$2$": "bcrypt 2"}  # fmt: skip
_SUPPORTED = "argon2, bcrypt, PBKDF2 and scrypt are"
BETTER_AUTH = re.compile(r"([0-9a-f]{16,128}):([0-9a-f]{128})")


def from_text(text: str) -> str | None:
    """A hash in the notation of PHC, crypt, passlib or Django."""
    if not text or text.startswith("!"):  # Django's, and that of shadow files: no password
        return None
    if len(text) > _MOST_TEXT:
        raise Refused(f"the password hash is longer than {_MOST_TEXT} characters")
    if text[:4] in ("$2a$", "$2b$", "$2y$"):
        return _bcrypt(text)
    if text.startswith(("$argon2", "argon2$argon2")):
        return _stored(_with_version(text if text[0] == "$" else text[6:]))
    for prefix, made in _DJANGO.items():
        if text.startswith(prefix):
            return made(text[len(prefix) :])
    if text.startswith(("$pbkdf2", "$scrypt", "$bcrypt")):
        return _phc(text)
    raise Refused(f"{_kind(text)} is not supported; {_SUPPORTED}")


def from_better_auth(text: str) -> str | None:
    """`salt:key` in hexadecimal digits; the digits of the salt are the salt."""
    found = BETTER_AUTH.fullmatch(text)
    if found is None:  # another function, by its option `password.hash`
        return from_text(text)
    salt, key = found.groups()
    return _join("$scrypt-nfkc$ln=14,r=16,p=1", salt.encode(), bytes.fromhex(key))


def from_keycloak(secret: Mapping[str, Any], data: Mapping[str, Any]) -> str | None:
    """`secretData` and `credentialData` of a credential of the type "password"."""
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
    return _pbkdf2(digests[algorithm], rounds, *raw)


def from_auth0(custom: Mapping[str, Any]) -> str | None:
    """`custom_password_hash`, as Auth0's bulk import takes it."""
    algorithm, found = custom.get("algorithm"), custom.get("hash")
    typed = custom.get("password")
    if not isinstance(found, Mapping) or not isinstance(value := found.get("value"), str):
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
    key = _binary(value, found.get("encoding"))
    return _scrypt(numbers, _binary(salt["value"], salt.get("encoding", "utf8")), key)


def _bcrypt(text: str, scheme: str = "bcrypt") -> str:
    found = re.fullmatch(r"\$2[aby]\$([0-9]{2})\$([A-Za-z0-9./]{22})([A-Za-z0-9./]{31})", text)
    if found is None:
        raise Refused("bcrypt: the hash is not complete")
    cost, salt, digest = found.groups()
    return _stored(f"${scheme}$r={int(cost)}${salt}${digest}")


def _django_pbkdf2(digest: str) -> Callable[[str], str]:
    def made(text: str) -> str:
        iterations, salt, value = _parts(text, 3)
        return _pbkdf2(digest, _number(iterations), salt.encode(), decoded(value.rstrip("=")))

    return made


def _django_scrypt(text: str) -> str:
    cost, salt, block, lanes, value = _parts(text, 5)
    numbers = [_number(one) for one in (cost, block, lanes)]
    return _scrypt(numbers, salt.encode(), decoded(value.rstrip("=")))


_DJANGO: Mapping[str, Callable[[str], str]] = {
    "pbkdf2_sha1$": _django_pbkdf2("sha1"),
    "pbkdf2_sha256$": _django_pbkdf2("sha256"),
    "pbkdf2_sha512$": _django_pbkdf2("sha512"),
    "bcrypt$": _bcrypt,
    "bcrypt_sha256$": lambda text: _bcrypt(text, "bcrypt-sha256"),
    "scrypt$": _django_scrypt,
}


def _phc(text: str) -> str:
    """Also as passlib writes it: "." for "+", and the iterations alone."""
    _, scheme, numbers, salt, digest = _parts(text, 5)
    if scheme.startswith("bcrypt"):
        return _stored(text)
    pairs = dict(re.findall(r"([a-z]{1,2})=([0-9]{1,9})", numbers))
    raw = [decoded(one.replace(".", "+").rstrip("=")) for one in (salt, digest)]
    if scheme.startswith("scrypt"):
        return _join(f"${scheme}$ln={pairs.get('ln')},r={pairs.get('r')},p={pairs.get('p')}", *raw)
    known = "sha1" if scheme == "pbkdf2" else scheme.removeprefix("pbkdf2-")
    if known not in _BLOCKS:
        raise Refused(f"{_kind(text)} is not supported; {_SUPPORTED}")
    return _pbkdf2(known, _number(pairs.get("i", numbers)), *raw)


def _pbkdf2(digest: str, iterations: int, salt: bytes, key: bytes) -> str:
    return _join(f"$pbkdf2-{digest}$i={iterations}", salt, key[: _BLOCKS[digest]])


def _scrypt(numbers: Sequence[Any], salt: bytes, key: bytes) -> str:
    cost, block, lanes = numbers
    if cost < 2 or cost & (cost - 1):
        raise Refused("scrypt: N is not a power of two")
    return _join(f"$scrypt$ln={cost.bit_length() - 1},r={block},p={lanes}", salt, key)


def _with_version(text: str) -> str:
    # Without one, it is the first.
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


def _first(found: Mapping[str, Any], name: str, usual: str) -> str:
    value = found.get(name, [usual])
    text = str(value[0]) if isinstance(value, list) and value else ""
    return text if re.fullmatch(r"[0-9a-z.]{1,9}", text) else "?"


def _kind(text: str) -> str:
    for prefix, name in _CRYPT.items():
        if text.startswith(prefix):
            return name
    found = _WEAK.match(text)
    return found[1] if found else "this kind of password hash"


def _name(value: Any) -> str:
    return (
        value
        if isinstance(value, str) and re.fullmatch("[a-z0-9-]{1,30}", value)
        else "the algorithm"
    )
