"""Authenticator apps (RFC 6238), and recovery codes in case the phone is lost.

An app shows six digits for thirty seconds; one step of clock drift each way is accepted. There are
ten recovery codes, and each works once.
"""

import logging
import secrets
from typing import TYPE_CHECKING
from uuid import UUID

import pyotp

from sso import clock, context
from sso.crypto import secrets as crypto_secrets
from sso.mfa import passkeys
from sso.models import TotpSecret, User
from sso.process import program
from sso.process.program import COMMAND
from sso.store import factors
from sso.store.factors import EncryptedTotpSecret

if TYPE_CHECKING:
    import segno
else:
    segno = program.late_module("segno")  # 0.6 MB


logger = logging.getLogger("sso.factors")

STEP = 30  # seconds
WINDOW = 1  # steps before and after the present one (RFC 6238 §5.2)


def new_secret() -> str:
    """Return a new secret: 160 random bits in base32."""
    return pyotp.random_base32(32)


def code(secret: str, steps: int = 0) -> str:
    """Return the code that an app shows now, or `steps` later."""
    return pyotp.HOTP(secret).at(clock.timestamp(clock.now()) // STEP + steps)


def provisioning_uri(secret: str, user: User) -> str:
    """Return the `otpauth` URI for the QR code."""
    issuer = passkeys.rp_name().replace(":", " ")  # a colon would end the issuer
    return pyotp.TOTP(secret).provisioning_uri(name=user.email, issuer_name=issuer)


def qr_code(text: str) -> str:
    """Return an SVG element without styles or scripts, always black on white."""
    return str(segno.make(text, error="m").svg_inline(scale=4, light="#fff"))


def enrol(user_id: UUID, secret: str, code: str) -> bool:
    """Store the secret and use the code up; return False if the code is wrong. Does not commit.

    Raises `IntegrityError` if the user already has an app.
    """
    step = matching_step(secret, code)
    if step is None:
        return False
    row = taken_over(user_id, secret)
    row.last_step, row.last_used_at = step, row.created_at
    factors.add_totp_secret(row)
    return True


def taken_over(user_id: UUID, secret: str) -> TotpSecret:
    """Return the row of a secret whose codes were accepted elsewhere; it is not stored yet."""
    encrypted = crypto_secrets.encrypt(
        context.settings().secret_keys, _purpose(user_id), secret.encode()
    )
    return TotpSecret(user_id=user_id, sealed_secret=encrypted, created_at=clock.now())


def accept(user_id: UUID, code: str) -> bool:
    """Use a code up; return False if it is wrong or was used before. Does not commit."""
    row = factors.find_totp_secret(user_id)
    if row is None:
        return False
    secret = opened(user_id, row.sealed_secret)
    if secret is None:
        logger.error(
            "SSO_SECRET_KEY does not open the authenticator app's secret of user %s; run: "
            f"{COMMAND} key reencrypt with SSO_SECRET_KEY_PREVIOUS, or "
            f"{COMMAND} user reset-factors",
            user_id,
        )
        return False
    step = matching_step(secret, code)
    return step is not None and factors.use_totp_secret(user_id, step, clock.now())


def opened(user_id: UUID, sealed_secret: str) -> str | None:
    """Return a secret; `None` if no secret key decrypts it."""
    try:
        keys = context.settings().secret_keys
        return crypto_secrets.decrypt(keys, _purpose(user_id), sealed_secret).decode()
    except crypto_secrets.InvalidToken:
        return None


def reencrypt(row: EncryptedTotpSecret) -> str | None:
    """Encrypt the row's secret with the current secret key; return `None` if it already is.

    Raises `secrets.InvalidToken` if no secret key decrypts it.
    """
    return crypto_secrets.reencrypt(
        context.settings().secret_keys, _purpose(row.user_id), row.sealed_secret
    )


def is_current(row: EncryptedTotpSecret) -> bool:
    """Return whether the row is encrypted with the current secret key."""
    try:
        crypto_secrets.decrypt(
            context.settings().secret_key, _purpose(row.user_id), row.sealed_secret
        )
    except crypto_secrets.InvalidToken:
        return False
    return True


def matching_step(secret: str, code: str) -> int | None:
    """Return the time step of a code, if it is within the window around now."""
    code = "".join(code.split())
    present = clock.timestamp(clock.now()) // STEP
    generator = pyotp.HOTP(secret)
    matching = None
    for step in range(present - WINDOW, present + WINDOW + 1):
        if crypto_secrets.is_equal(generator.at(step), code):
            matching = step
    return matching


def _purpose(user_id: UUID) -> str:
    # Bound to the user: a row copied to another user decrypts to nothing.
    return f"totp secret of {user_id}"


RECOVERY_CODES = 10
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # without characters that look alike
_GROUPS, _LETTERS = 4, 4  # 79 random bits: a fast digest is sound


def renew_recovery_codes(user_id: UUID) -> list[str]:
    """Replace the recovery codes; return the new ones, which are shown once. Does not commit."""
    codes = [_recovery_code() for _ in range(RECOVERY_CODES)]
    factors.replace_recovery_codes(
        user_id, [crypto_secrets.digest(_normal_recovery_code(code)) for code in codes], clock.now()
    )
    return codes


def accept_recovery_code(user_id: UUID, code: str) -> bool:
    """Use a recovery code up; return False if the user has no such code. Does not commit.

    Codes that Keycloak made are in capital letters.
    """
    normal, now = _normal_recovery_code(code), clock.now()
    return factors.use_recovery_code(
        user_id, crypto_secrets.digest(normal), now
    ) or factors.use_recovery_code(user_id, crypto_secrets.foreign_code_digest(normal.upper()), now)


def _recovery_code() -> str:
    groups = ("".join(secrets.choice(_ALPHABET) for _ in range(_LETTERS)) for _ in range(_GROUPS))
    return "-".join(groups)


def _normal_recovery_code(code: str) -> str:
    return "".join(c for c in code.lower() if c.isalnum())
