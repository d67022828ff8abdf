"""What better-auth encrypts in its database: secrets of authenticator apps, backup codes, and
client secrets if it says so.

The algorithm is XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha), the key the SHA-256 of its secret.
Since it knows several secrets, a text may say which one: `$ba$VERSION$`, before hexadecimal digits.
"""

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

_ENCRYPTED = re.compile(r"(?:\$ba\$[0-9]{1,9}\$)?((?:[0-9a-f]{2}){40,10000})")
_NONCE = 24  # bytes
_INNER = 16  # of them, for the key
_CONSTANT = b"expand 32-byte k"
_MODULUS = 2**32


def is_encrypted(text: str) -> bool:
    """Return whether a text looks as if better-auth had encrypted it."""
    return _ENCRYPTED.fullmatch(text) is not None


class Secrets:
    """The secrets of an installation: one, or several as `BETTER_AUTH_SECRETS` has them."""

    def __init__(self, texts: Iterable[str]) -> None:
        each = dict.fromkeys(secret for text in texts for secret in _secrets_in(text))
        self._keys = [hashlib.sha256(secret.encode()).digest() for secret in each]

    def decrypted(self, text: str) -> str | None:
        """Decrypt a text; `None` if none of the secrets decrypts it."""
        match = _ENCRYPTED.fullmatch(text)
        raw = bytes.fromhex(match[1]) if match else b""
        for key in self._keys if raw else ():
            try:
                return decrypt(key, raw[:_NONCE], raw[_NONCE:]).decode()
            except (InvalidTag, UnicodeDecodeError):
                continue
        return None


def _secrets_in(text: str) -> Iterator[str]:
    """Yield a text, and what it has if it is a list such as `2:new,1:old`."""
    yield text
    for entry in text.split(","):
        version, colon, secret = entry.strip().partition(":")
        if colon and version.isdecimal() and secret.strip():
            yield secret.strip()


def decrypt(key: bytes, nonce: bytes, encrypted: bytes) -> bytes:
    """Decrypt by XChaCha20-Poly1305. Raises `InvalidTag`."""
    inner = _derived_key(key, nonce[:_INNER])
    return ChaCha20Poly1305(inner).decrypt(bytes(4) + nonce[_INNER:], encrypted, None)


def _derived_key(key: bytes, nonce: bytes) -> bytes:
    """Return HChaCha20 of a key: a block of ChaCha20 without the state that it adds at the end."""
    block = Cipher(ChaCha20(key, nonce), None).encryptor().update(bytes(64))
    numbers = struct.unpack("<16I", block)
    constant, counter = struct.unpack("<4I", _CONSTANT), struct.unpack("<4I", nonce)
    first = [
        (number - start) % _MODULUS for number, start in zip(numbers[:4], constant, strict=True)
    ]
    last = [
        (number - start) % _MODULUS for number, start in zip(numbers[12:], counter, strict=True)
    ]
    return struct.pack("<8I", *first, *last)
