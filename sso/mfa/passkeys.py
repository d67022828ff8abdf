"""Passkeys (WebAuthn Level 3), on the library `webauthn`."""

import json
import logging
import secrets
from datetime import datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from sso import clock, context
from sso.imports.person import ANY_HANDLE
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
MAX_TEXT = 20_000  # characters of a browser's answer
LIFETIME = 600  # seconds of a challenge
SIGN_IN_LIFETIME = 24 * 3600  # the sign-in page offers passkeys as long as it is open
SIGN_IN = "sign in"
_CHALLENGE = "passkey challenge to "


class PasskeyRequest(NamedTuple):
    """The data that a page passes to the browser: options as JSON, and the signed challenge."""

    options: str
    challenge: str


def rp_id() -> str:
    """Return the relying party identifier: the host of `SSO_BASE_URL` (WebAuthn §4)."""
    return urlsplit(context.settings().base_url).hostname or ""


def rp_name() -> str:
    """Return the name of the service for authenticators."""
    return context.branding().name or rp_id()


def available() -> bool:
    """Return whether browsers allow passkeys here: the host must not be an IP address."""
    try:
        ip_address(rp_id())
    except ValueError:
        return True
    return False


def ask_to_enrol(user: User, existing: list[Passkey]) -> PasskeyRequest:
    """Return options to create a passkey, on an authenticator that has none of the user's."""
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
        exclude_credentials=_descriptors(existing),
    )
    return PasskeyRequest(webauthn.options_to_json(options), text)


def ask_to_sign_in() -> PasskeyRequest:
    """Return options to sign in with a passkey alone, for any user."""
    challenge, text = _challenge(SIGN_IN)
    # Made without the library, so that sign-in pages do not load it.
    options = {
        "challenge": challenge,
        "timeout": 60_000,  # milliseconds
        "rpId": rp_id(),
        "userVerification": "required",
    }
    return PasskeyRequest(json.dumps(options), text)


def ask_as_second(user: User, existing: list[Passkey]) -> PasskeyRequest:
    """Return options to use one of the user's passkeys after the password."""
    challenge, text = _challenge(f"confirm {user.id}")
    options = webauthn.generate_authentication_options(
        rp_id=rp_id(),
        challenge=webauthn.base64url_to_bytes(challenge),
        allow_credentials=_descriptors(existing),
        user_verification=w.UserVerificationRequirement.PREFERRED,
    )
    return PasskeyRequest(webauthn.options_to_json(options), text)


def enrol(
    user: User, browser: str, existing: list[Passkey], answer: str, challenge: str
) -> Passkey | None:
    """Store a new passkey; return `None` if the answer is invalid. Does not commit.

    It is named after its authenticator, or else after the browser. `existing`: the other passkeys.
    Raises `IntegrityError` if the credential is already registered.
    """
    signed_challenge = _verify_challenge(challenge, f"enrol {user.id}", LIFETIME)
    if signed_challenge is None or len(answer) > MAX_TEXT:
        return None
    try:
        credential = webauthn.helpers.parse_registration_credential_json(answer)
        registration = webauthn.verify_registration_response(
            credential=credential,
            expected_challenge=signed_challenge[0],
            expected_rp_id=rp_id(),
            expected_origin=_origin(),
        )
    except Exception as error:  # the library does not catch the errors of its parsers
        logger.info("passkey refused: %s", type(error).__name__)
        return None
    passkey = Passkey(
        user_id=user.id,
        name=passkey_names.distinct(
            passkey_names.of(registration.aaguid, browser), [other.name for other in existing]
        ),
        credential_id=webauthn.helpers.bytes_to_base64url(registration.credential_id),
        public_key=webauthn.helpers.bytes_to_base64url(registration.credential_public_key),
        transports=" ".join(transport.value for transport in credential.response.transports or ()),
        sign_count=registration.sign_count,
        is_synced=registration.credential_device_type is w.CredentialDeviceType.MULTI_DEVICE,
        created_at=clock.now(),
    )
    factors.add_passkey(passkey)
    return passkey


def accept_sign_in(answer: str, challenge: str) -> tuple[User, policy.Proof] | None:
    """Verify a sign-in with a passkey alone; return the user, who is locked. Does not commit.

    Returns `None` if the answer is invalid. The passkey has to verify its user.
    """
    signed_challenge = _verify_challenge(challenge, SIGN_IN, SIGN_IN_LIFETIME)
    passkey_and_user = _accept(answer, signed_challenge, owner=None)
    if passkey_and_user is None:
        return None
    passkey, user = passkey_and_user
    return user, policy.of_passkey_alone(passkey.is_synced)


def accept_as_second(user: User, answer: str, challenge: str) -> str | None:
    """Verify a passkey of this user; return its methods, or `None`. Does not commit."""
    signed_challenge = _verify_challenge(challenge, f"confirm {user.id}", LIFETIME)
    passkey_and_user = _accept(answer, signed_challenge, owner=user)
    return policy.passkey_methods(passkey_and_user[0].is_synced) if passkey_and_user else None


def _accept(
    answer: str, signed_challenge: tuple[bytes, datetime] | None, owner: User | None
) -> tuple[Passkey, User] | None:
    """Verify an answer (WebAuthn §7.2). `owner`: the expected user; `None` accepts any user."""
    if signed_challenge is None or len(answer) > MAX_TEXT:
        return None
    try:
        credential = webauthn.helpers.parse_authentication_credential_json(answer)
    except Exception as error:  # the library does not catch the errors of its parsers
        logger.info("passkey refused: %s", type(error).__name__)
        return None
    passkey_and_user = factors.find_passkey_with_user(
        webauthn.helpers.bytes_to_base64url(credential.raw_id)
    )
    if passkey_and_user is None:
        return None
    passkey, user = passkey_and_user
    handle = credential.response.user_handle
    handles = [user.id.bytes, str(user.id).encode()]  # those of Keycloak are texts
    is_any = passkey.user_handle == ANY_HANDLE  # which no signature covers
    if passkey.user_handle and not is_any:
        handles.append(webauthn.base64url_to_bytes(passkey.user_handle))
    if owner is None:
        is_theirs = is_any or handle in handles  # §7.2 step 6: the authenticator names the user
    else:
        is_theirs = user.id == owner.id and (is_any or handle in (None, b"", *handles))
    if not is_theirs:
        return None
    try:
        verified = webauthn.verify_authentication_response(
            credential=credential,
            expected_challenge=signed_challenge[0],
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
    is_first_use = factors.use_passkey(
        passkey, signed_challenge[1], verified.new_sign_count, clock.now()
    )
    return passkey_and_user if is_first_use else None


def _challenge(purpose: str) -> tuple[str, str]:
    challenge = secrets.token_urlsafe(32)
    return challenge, policy.sign_value(challenge, _CHALLENGE + purpose)


def _verify_challenge(text: str, purpose: str, lifetime: int) -> tuple[bytes, datetime] | None:
    signed = policy.verify_value(text, _CHALLENGE + purpose, lifetime)
    return (webauthn.base64url_to_bytes(signed[0]), signed[1]) if signed else None


def _origin() -> str:
    # As browsers serialize it (RFC 6454 §6.2): in lower case, without the scheme's default port.
    parts = urlsplit(context.settings().base_url)
    usual = {"https": 443, "http": 80}[parts.scheme]
    port = f":{parts.port}" if parts.port not in (None, usual) else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


def _descriptors(existing: list[Passkey]) -> "list[w.PublicKeyCredentialDescriptor]":
    return [
        w.PublicKeyCredentialDescriptor(
            id=webauthn.base64url_to_bytes(passkey.credential_id),
            transports=[
                w.AuthenticatorTransport(name)
                for name in passkey.transports.split()
                if name in {transport.value for transport in w.AuthenticatorTransport}
            ],
        )
        for passkey in existing
    ]
