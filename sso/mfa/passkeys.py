"""Passkeys (WebAuthn Level 3), on the library `webauthn`."""

import json
import logging
import secrets
from datetime import datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from sso import clock, context
from sso.mfa import passkey_names, policy
from sso.models import Passkey, User
from sso.process import program
from sso.store import factors, users

if TYPE_CHECKING:
    import webauthn
    from webauthn.helpers import structs as w
else:
    webauthn = program.late_module("webauthn")  # 5.5 MB
    w = program.late_module("webauthn.helpers.structs")

logger = logging.getLogger("sso.passkeys")

MOST = 20  # passkeys of one user
MAX_TEXT = 20_000  # characters of what a browser may answer
LIFETIME = 600  # seconds of a challenge
SIGN_IN_LIFETIME = 24 * 3600  # of the sign-in page's: browsers offer passkeys as long as it is open
SIGN_IN = "sign in"
_CHALLENGE = "passkey challenge to "


class Asked(NamedTuple):
    """What a page gives to the browser: the options as JSON, and the signed challenge."""

    options: str
    challenge: str


def rp_id() -> str:
    """The relying party identifier: the host of `SSO_BASE_URL` (WebAuthn §4)."""
    return urlsplit(context.settings().base_url).hostname or ""


def rp_name() -> str:
    """What authenticators call this service."""
    return context.settings().name or rp_id()


def available() -> bool:
    """Whether browsers allow passkeys here: the host has to be a name, not an address."""
    try:
        ip_address(rp_id())
    except ValueError:
        return True
    return False


def ask_to_enrol(user: User, known: list[Passkey]) -> Asked:
    """Options to make a passkey, on an authenticator that has none of the user's yet."""
    challenge, text = _challenge(f"enrol {user.id}")
    options = webauthn.generate_registration_options(
        rp_id=rp_id(),
        rp_name=rp_name(),
        user_id=user.id.bytes,
        user_name=user.email,
        user_display_name=user.name,
        challenge=webauthn.base64url_to_bytes(challenge),
        authenticator_selection=w.AuthenticatorSelectionCriteria(
            resident_key=w.ResidentKeyRequirement.PREFERRED,
            user_verification=w.UserVerificationRequirement.PREFERRED,
        ),
        exclude_credentials=_descriptors(known),
    )
    return Asked(webauthn.options_to_json(options), text)


def ask_to_sign_in() -> Asked:
    """Options to sign in by a passkey alone; the browser knows whose it has."""
    challenge, text = _challenge(SIGN_IN)
    # Without the library, which each sign-in page would otherwise load.
    options = {
        "challenge": challenge,
        "timeout": 60_000,  # milliseconds
        "rpId": rp_id(),
        "userVerification": "required",
    }
    return Asked(json.dumps(options), text)


def ask_as_second(user: User, known: list[Passkey]) -> Asked:
    """Options to show one of the user's passkeys after the password."""
    challenge, text = _challenge(f"confirm {user.id}")
    options = webauthn.generate_authentication_options(
        rp_id=rp_id(),
        challenge=webauthn.base64url_to_bytes(challenge),
        allow_credentials=_descriptors(known),
        user_verification=w.UserVerificationRequirement.PREFERRED,
    )
    return Asked(webauthn.options_to_json(options), text)


def enrol(
    user: User, browser: str, known: list[Passkey], answer: str, challenge: str
) -> Passkey | None:
    """Store a new passkey; `None` if the answer is invalid. Does not commit.

    Its name is that of its authenticator, or else of the browser. `known`: the other passkeys.
    Raises `IntegrityError` if the credential is already registered.
    """
    asked = _asked(challenge, f"enrol {user.id}", LIFETIME)
    if asked is None or len(answer) > MAX_TEXT:
        return None
    try:
        credential = webauthn.helpers.parse_registration_credential_json(answer)
        made = webauthn.verify_registration_response(
            credential=credential,
            expected_challenge=asked[0],
            expected_rp_id=rp_id(),
            expected_origin=_origin(),
        )
    except Exception as error:  # the library does not catch the errors of its parsers
        logger.info("passkey refused: %s", type(error).__name__)
        return None
    passkey = Passkey(
        user_id=user.id,
        name=passkey_names.distinct(
            passkey_names.of(made.aaguid, browser), [one.name for one in known]
        ),
        credential_id=webauthn.helpers.bytes_to_base64url(made.credential_id),
        public_key=webauthn.helpers.bytes_to_base64url(made.credential_public_key),
        transports=" ".join(one.value for one in credential.response.transports or ()),
        sign_count=made.sign_count,
        is_synced=made.credential_device_type is w.CredentialDeviceType.MULTI_DEVICE,
        created_at=clock.now(),
    )
    factors.add_passkey(passkey)
    return passkey


def accept_sign_in(answer: str, challenge: str) -> tuple[User, policy.Proof] | None:
    """Who signs in by this passkey alone; it has verified its user. Does not commit.

    The user is locked then, until the transaction ends.
    """
    asked = _asked(challenge, SIGN_IN, SIGN_IN_LIFETIME)
    passkey_and_user = _accept(answer, asked, owner=None)
    if passkey_and_user is None:
        return None
    passkey, user = passkey_and_user
    return user, policy.of_passkey_alone(passkey.is_synced)


def accept_as_second(user: User, answer: str, challenge: str) -> str | None:
    """The methods that this user's passkey proves, or `None`. Does not commit."""
    asked = _asked(challenge, f"confirm {user.id}", LIFETIME)
    found = _accept(answer, asked, owner=user)
    return policy.passkey_methods(found[0].is_synced) if found else None


def _accept(
    answer: str, asked: tuple[bytes, datetime] | None, owner: User | None
) -> tuple[Passkey, User] | None:
    """Check an answer (WebAuthn §7.2). `owner`: whose it has to be; `None`: the user it names."""
    if asked is None or len(answer) > MAX_TEXT:
        return None
    try:
        credential = webauthn.helpers.parse_authentication_credential_json(answer)
    except Exception as error:  # the library does not catch the errors of its parsers
        logger.info("passkey refused: %s", type(error).__name__)
        return None
    found = factors.find_passkey_with_user(webauthn.helpers.bytes_to_base64url(credential.raw_id))
    if found is None:
        return None
    passkey, user = found
    handle = credential.response.user_handle
    if owner is None:
        is_theirs = handle == user.id.bytes  # §7.2 step 6: the authenticator has to name the user
    else:
        is_theirs = user.id == owner.id and handle in (None, b"", user.id.bytes)
    if not is_theirs:
        return None
    try:
        verified = webauthn.verify_authentication_response(
            credential=credential,
            expected_challenge=asked[0],
            expected_rp_id=rp_id(),
            expected_origin=_origin(),
            credential_public_key=webauthn.base64url_to_bytes(passkey.public_key),
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=owner is None,
        )
    except Exception as error:  # as above
        logger.info("passkey refused: %s", type(error).__name__)
        return None
    if owner is None and users.lock(user.id) is None:  # before the passkey: see `policy`
        return None
    used = factors.use_passkey(passkey, asked[1], verified.new_sign_count, clock.now())
    return found if used else None


def _challenge(purpose: str) -> tuple[str, str]:
    challenge = secrets.token_urlsafe(32)
    return challenge, policy.sign_value(challenge, _CHALLENGE + purpose)


def _asked(text: str, purpose: str, lifetime: int) -> tuple[bytes, datetime] | None:
    found = policy.verify_value(text, _CHALLENGE + purpose, lifetime)
    return (webauthn.base64url_to_bytes(found[0]), found[1]) if found else None


def _origin() -> str:
    # As browsers write it (RFC 6454 §6.2): in small letters, without the scheme's own port.
    parts = urlsplit(context.settings().base_url)
    usual = {"https": 443, "http": 80}[parts.scheme]
    port = f":{parts.port}" if parts.port not in (None, usual) else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


def _descriptors(known: list[Passkey]) -> "list[w.PublicKeyCredentialDescriptor]":
    return [
        w.PublicKeyCredentialDescriptor(
            id=webauthn.base64url_to_bytes(one.credential_id),
            transports=[
                w.AuthenticatorTransport(name)
                for name in one.transports.split()
                if name in {known.value for known in w.AuthenticatorTransport}
            ],
        )
        for one in known
    ]
