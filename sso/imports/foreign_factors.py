"""Passkeys and secrets of authenticator apps of other servers, as they are stored here.

Passkeys are bound to a host name, the relying party: they are only taken if it stays.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sso.imports.person import ANY_HANDLE, IDENTITIES, KEYS, Factors, StoredPasskey
from sso.process import program

if TYPE_CHECKING:
    from webauthn import helpers as webauthn
else:
    webauthn = program.late_module("webauthn.helpers")

MOST_PASSKEYS = 20  # of one person
MOST_IDENTITIES = 20
OTHER_APPS = "authenticator apps that are not TOTP with 6 digits, 30 seconds and SHA-1"
OTHER_HOST = f"{KEYS}, which are bound to another host name (see --rp-id)"
BROKEN_KEYS = f"{KEYS} that cannot be read"
_SECRET_BYTES = range(10, 129)
_CREDENTIAL_BYTES = range(1, 1024)
_KEY_BYTES = range(1, 4097)
_HANDLE_BYTES = range(65)  # WebAuthn §5.4.3
_LABEL = 60  # characters of the name of a passkey


def totp_secret(raw: bytes) -> str:
    """Return a secret in base32; "" if it is too short or too long."""
    if len(raw) not in _SECRET_BYTES:
        return ""
    return base64.b32encode(raw).decode().rstrip("=")


def from_base32(text: str) -> bytes:
    """Decode base32, with or without padding; empty if it is something else."""
    plain = text.strip().upper().rstrip("=")
    try:
        return base64.b32decode(plain + "=" * (-len(plain) % 8))
    except ValueError:  # `binascii.Error` is one; another is raised beyond ASCII
        return b""


def passkey(
    credential_id: bytes,
    public_key: bytes,
    *,
    count: Any = 0,
    transports: Iterable[str] = (),
    label: str = "",
    user_handle: bytes = b"",
    is_handle_known: bool = True,
) -> StoredPasskey | None:
    """Return a passkey; `None` if it cannot be one. `public_key`: in COSE."""
    is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**32
    if len(public_key) not in _KEY_BYTES or len(credential_id) not in _CREDENTIAL_BYTES:
        return None
    if not is_count or len(user_handle) not in _HANDLE_BYTES:
        return None
    if not _is_key(public_key):
        return None
    ways = [name for name in transports if name.isascii() and name.isprintable()]
    name = " ".join("".join(c for c in label if c == " " or c.isprintable()).split())
    return StoredPasskey(
        base64url(credential_id), base64url(public_key), count, " ".join(ways)[:100],
        name[:_LABEL] or "Passkey", base64url(user_handle) if is_handle_known else ANY_HANDLE,
    )  # fmt: skip


def _is_key(public_key: bytes) -> bool:
    """Return whether a key can verify anything. Somebody with another could never sign in."""
    try:
        decoded = webauthn.decode_credential_public_key(public_key)
        webauthn.decoded_public_key_to_cryptography(decoded)
    except Exception:  # the library does not catch the errors of its parsers
        return False
    return True


def take_identity(factors: Factors, provider: tuple[str, str] | None, subject: str) -> str | None:
    """Take a link to a provider, the ID and issuer of which are here. Returns why it is lost."""
    is_fit = 0 < len(subject) <= 255 and subject.isprintable()
    if not provider or not is_fit or len(factors.identities) >= MOST_IDENTITIES:
        return f"{IDENTITIES} (see --provider)"
    factors.identities.append((*provider, subject))
    return None


def from_base64(value: Any) -> bytes:
    """Decode base64 or base64url, with or without padding; empty if it is neither."""
    if not isinstance(value, str):
        return b""
    plain = value.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
