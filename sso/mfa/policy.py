"""Authentication policy: proof before changes to an account, and pending second factors.

Sessions begin, and factors and passwords change, only while the user's row is locked; the factors
are read after locking. So no session with one factor begins after the first factor was added. Locks
are taken in this order: user, factor, session.

`Proof` holds the `amr` (RFC 8176) and `acr` (OIDC Core §2) of a sign-in. A sign-in that still needs
its second factor is a signed value in the browser's cookie, bound to that browser: nothing is
stored for a visitor who may never sign in. It gives access only to the page that asks for the
second factor. It ends after ten minutes, with a new password, with all sessions of the user, or
when the provider ends it.
"""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import flask
from itsdangerous import BadData, URLSafeSerializer

from sso import clock, context, database
from sso.crypto import secrets as crypto_secrets
from sso.flow.request import ONE_FACTOR, TWO_FACTORS
from sso.models import UpstreamSession, User
from sso.store import factors, identities, outbox, sessions, users
from sso.store.factors import Factors
from sso.store.sessions import CurrentSession

FRESH_SIGN_IN = timedelta(minutes=5)  # to change factors, or to ask for an emailed code
RECENT_FACTOR = timedelta(minutes=15)  # to change the password or the email address
ALLOWED_FOR = timedelta(minutes=15)  # to add the first factor, after a code or a link allowed it
SETUP = timedelta(minutes=15)  # to scan a QR code and type a code back
# Anyone who has the password alone can redirect the account's mail; the owner needs time to notice.
EMAIL_SETTLES = timedelta(days=7)


def lock(current: CurrentSession) -> CurrentSession | None:
    """Lock the user of a session, and read both again.

    Returns `None` if meanwhile the session ended or got a new secret, the password was changed, or
    the user was disabled.
    """
    digest, password_hash = current.session.digest, current.user.password_hash
    user = users.lock(current.user.id)
    if user is None or user.password_hash != password_hash:
        return None
    return sessions.find_live_fresh(digest)


def is_fresh(current: CurrentSession) -> bool:
    """Return whether the user signed in within the last minutes."""
    return _within(current.session.auth_time, FRESH_SIGN_IN)


def lacks_second_factor(current: CurrentSession) -> bool:
    """Return whether the account has factors, and none was used in this session recently."""
    return not has_recent_factor(current) and factors.has_any(
        database.session_connection(), current.user.id
    )


def has_recent_factor(current: CurrentSession) -> bool:
    """Return whether a second factor was used in this session recently."""
    return _within(current.session.second_factor_at, RECENT_FACTOR)


def asks_for_code(current: CurrentSession, existing: Factors) -> bool:
    """Return whether adding the first factor requires a code by email, or a link.

    Without a mail server, no code is required.
    """
    if existing or current.session.acr == TWO_FACTORS or context.settings().smtp_url is None:
        return False
    return not _within(current.session.enrolment_allowed_at, ALLOWED_FOR)


def may_change(current: CurrentSession, existing: Factors) -> bool:
    """Return whether factors may be added or removed in this session now."""
    if existing:
        return is_fresh(current) and current.session.acr == TWO_FACTORS
    if asks_for_code(current, existing):
        return False
    # The code was requested after a fresh sign-in; its mail may have taken minutes.
    return is_fresh(current) or _within(current.session.enrolment_allowed_at, ALLOWED_FOR)


def may_finish(current: CurrentSession, existing: Factors) -> bool:
    """Return whether this session may add the authenticator app that it began to set up."""
    if current.session.acr == TWO_FACTORS:
        return True
    if existing:
        return False
    allowed = _within(current.session.enrolment_allowed_at, ALLOWED_FOR + SETUP)
    return allowed or context.settings().smtp_url is None


def email_settled(user: User) -> bool:
    """Return whether the email address has been the user's long enough to serve as a proof."""
    return not _within(user.email_changed_at, EMAIL_SETTLES)


def _within(moment: datetime | None, span: timedelta) -> bool:
    return moment is not None and clock.now() - moment < span


OTP = "otp"  # authenticator apps, recovery codes, emailed codes: one-time passwords all
_ORDER = ("pwd", "fed", "otp", "hwk", "swk", "user", "mfa")


class Proof(NamedTuple):
    """The methods of a sign-in, separated by spaces, and the level that they reach."""

    amr: str
    acr: str


PASSWORD = Proof("pwd", ONE_FACTOR)
EMAILED_CODE = Proof(OTP, ONE_FACTOR)


def passkey_methods(is_synced: bool) -> str:
    """Return the methods of a passkey: a software key if synced, else a hardware key."""
    return "swk user" if is_synced else "hwk user"


def of_passkey_alone(is_synced: bool) -> Proof:
    """Return the proof of a verified passkey: the device and a PIN or finger are two factors."""
    return Proof(f"{passkey_methods(is_synced)} mfa", TWO_FACTORS)


def of_upstream(methods: str, has_two_factors: bool) -> Proof:
    """Return the proof of an upstream sign-in; two factors if the operator trusts them."""
    return Proof(f"{methods} mfa", TWO_FACTORS) if has_two_factors else Proof(methods, ONE_FACTOR)


def with_second(first: str, second: str) -> Proof:
    """Return the proof of two factors, each given by its methods."""
    methods = {*first.split(), *second.split(), "mfa"}
    return Proof(" ".join(name for name in _ORDER if name in methods), TWO_FACTORS)


_BROWSER = "browser"  # in the browser's cookie; a new sign-in makes a new one
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sign_value(value: Any, purpose: str) -> str:
    """Sign a JSON value for one purpose and this browser, with its time."""
    micros = (clock.now() - _EPOCH) // timedelta(microseconds=1)
    text = _serializer(purpose).dumps([micros, value])
    return text if isinstance(text, str) else text.decode()


def verify_value(text: str, purpose: str, lifetime: int) -> tuple[Any, datetime] | None:
    """Return a signed value and its time.

    Returns `None` if the signature is invalid, of another browser, or older than `lifetime`
    seconds.
    """
    if _BROWSER not in flask.session:
        return None  # without changing the session
    try:
        micros, value = _serializer(purpose).loads(text)
    except (BadData, ValueError, TypeError):
        return None
    signed_at = _EPOCH + timedelta(microseconds=micros)
    age = clock.now() - signed_at
    return (value, signed_at) if age <= timedelta(seconds=lifetime) else None


def _serializer(purpose: str) -> URLSafeSerializer:
    browser = flask.session.get(_BROWSER)
    if not isinstance(browser, str):
        browser = flask.session[_BROWSER] = secrets.token_urlsafe(16)
    return URLSafeSerializer(context.settings().signing_secrets, salt=f"{purpose} in {browser}")


PENDING_LIFETIME = 600  # seconds, to look for the phone
_KEY = "pending_mfa"
_PURPOSE = "password was right"
_NOTICE = "half_way_notice"


class PendingMfa(NamedTuple):
    """A sign-in that waits for its second factor. `remember`: keep the user signed in.

    `upstream`: the sign-in at an identity provider, if it replaced the password.
    """

    user: User
    remember: bool
    upstream: UpstreamSession | None = None


def begin_pending(user: User, remember: bool, upstream: UpstreamSession | None = None) -> None:
    """Store in the browser's cookie that the first factor was correct."""
    value = [str(user.id), remember, _fingerprint(user), str(upstream.id) if upstream else None]
    flask.session[_KEY] = sign_value(value, _PURPOSE)


def current_pending() -> PendingMfa | None:
    """Return the sign-in that is pending in this browser, if the user may still sign in."""
    text = flask.session.get(_KEY)
    signed = verify_value(text, _PURPOSE, PENDING_LIFETIME) if isinstance(text, str) else None
    if signed is None:
        return None
    user_id, remember, fingerprint, *via = signed[0]
    user = users.find(UUID(user_id))
    if (
        user is None
        or user.is_disabled
        or not crypto_secrets.is_equal(fingerprint, _fingerprint(user))
    ):
        return None
    upstream = None
    if via and via[0]:
        upstream = identities.unused_session(UUID(via[0]), user.id)
        if upstream is None:  # ended by the provider, or unlinked
            return None
    return PendingMfa(user, bool(remember), upstream)


def lock_pending(user: User) -> bool:
    """Lock the user of `current_pending`; return False if the sign-in has ended meanwhile."""
    fingerprint = _fingerprint(user)
    locked = users.lock(user.id)
    return locked is not None and _fingerprint(locked) == fingerprint


def notice_id() -> UUID | None:
    """Return the id of the mail that is sent unless the second step in this browser follows."""
    try:
        return UUID(flask.session.get(_NOTICE, ""))
    except (ValueError, TypeError, AttributeError):
        return None


def keep_notice(mail_id: UUID | None) -> None:
    """Store the id of that mail, so that `finish_pending` can withdraw it."""
    if mail_id:
        flask.session[_NOTICE] = str(mail_id)


def finish_pending(user: User) -> None:
    """End the pending sign-in after the second step, and withdraw the mail. Does not commit."""
    if mail_id := notice_id():
        outbox.withdraw_mail(mail_id, user.id)
    flask.session.pop(_NOTICE, None)
    end_pending()


def end_pending() -> None:
    flask.session.pop(_KEY, None)


def _fingerprint(user: User) -> str:
    """Return what changes with the password, and whenever all sessions of the user end."""
    return crypto_secrets.digest(f"{user.device_version} {user.password_hash or ''}")
