"""What a user must prove: before an account is changed, and while a second factor is pending.

A session begins, factors change and passwords change only while the user's row is locked, and
whether the account has factors is read after that: so no session with one factor begins after the
first factor was added. Locks are taken in this order: user, then factor, then session.

`Proof` is what a sign-in has proven: `amr` (RFC 8176) and `acr` (OIDC Core §2). A sign-in that
still needs its second factor is a signed value in the browser's cookie, and bound to that browser:
nothing is stored for somebody who may never sign in. It gives access to one page, the one that asks
for the second factor. It ends after ten minutes, with a new password, or with the end of the
sign-in.
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


def lock(visit: CurrentSession) -> CurrentSession | None:
    """The visit as it is now, its user locked until the transaction ends.

    `None` if meanwhile the session ended or got a new identifier, the password was changed, or the
    user was disabled.
    """
    digest, password_hash = visit.session.digest, visit.user.password_hash
    user = users.lock(visit.user.id)
    if user is None or user.password_hash != password_hash:
        return None
    return sessions.find_live_fresh(digest)


def is_fresh(visit: CurrentSession) -> bool:
    """Whether the person signed in just now."""
    return _within(visit.session.auth_time, FRESH_SIGN_IN)


def lacks_second_factor(visit: CurrentSession) -> bool:
    """Whether the account has factors, and none of them was shown in this session lately."""
    shown = _within(visit.session.second_factor_at, RECENT_FACTOR)
    return not shown and factors.has_any(database.session_connection(), visit.user.id)


def asks_for_code(visit: CurrentSession, known: Factors) -> bool:
    """Whether the first factor needs more than the password: a code by email, or a link.

    Without a mail server there is nothing to ask for.
    """
    if known or visit.session.acr == TWO_FACTORS or context.settings().smtp_url is None:
        return False
    return not _within(visit.session.enrolment_allowed_at, ALLOWED_FOR)


def may_change(visit: CurrentSession, known: Factors) -> bool:
    """Whether factors may be added or removed in this session now."""
    if known:
        return is_fresh(visit) and visit.session.acr == TWO_FACTORS
    if asks_for_code(visit, known):
        return False
    # The code was asked for by a fresh sign-in; its mail may have taken minutes.
    return is_fresh(visit) or _within(visit.session.enrolment_allowed_at, ALLOWED_FOR)


def may_finish(visit: CurrentSession, known: Factors) -> bool:
    """Whether an authenticator app may be added whose set-up page this session was given."""
    if visit.session.acr == TWO_FACTORS:
        return True
    if known:
        return False
    allowed = _within(visit.session.enrolment_allowed_at, ALLOWED_FOR + SETUP)
    return allowed or context.settings().smtp_url is None


def email_settled(user: User) -> bool:
    """Whether the email address is the user's for long enough to prove who they are."""
    return not _within(user.email_changed_at, EMAIL_SETTLES)


def _within(moment: datetime | None, span: timedelta) -> bool:
    return moment is not None and clock.now() - moment < span


OTP = "otp"  # authenticator apps and recovery codes: one-time passwords both
_ORDER = ("pwd", "fed", "otp", "hwk", "swk", "user", "mfa")


class Proof(NamedTuple):
    """The methods that were used, with spaces between them, and the level that they reach."""

    amr: str
    acr: str


PASSWORD = Proof("pwd", ONE_FACTOR)


def passkey_methods(is_synced: bool) -> str:
    """A key in hardware or, copied between devices, in software; a person touched it."""
    return "swk user" if is_synced else "hwk user"


def of_passkey_alone(is_synced: bool) -> Proof:
    """A passkey with user verification is two in one: the device, and a PIN or a finger."""
    return Proof(f"{passkey_methods(is_synced)} mfa", TWO_FACTORS)


def of_upstream(methods: str, has_two_factors: bool) -> Proof:
    """What an identity provider has seen; two factors where the operator trusts it with them."""
    return Proof(f"{methods} mfa", TWO_FACTORS) if has_two_factors else Proof(methods, ONE_FACTOR)


def with_second(first: str, second: str) -> Proof:
    """A second factor after another one, each given by its methods."""
    used = {*first.split(), *second.split(), "mfa"}
    return Proof(" ".join(name for name in _ORDER if name in used), TWO_FACTORS)


_BROWSER = "browser"  # in the browser's cookie; a new sign-in makes a new one
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sign_value(value: Any, purpose: str) -> str:
    """Sign a JSON value for one purpose and this browser, with its time."""
    micros = (clock.now() - _EPOCH) // timedelta(microseconds=1)
    text = _serializer(purpose).dumps([micros, value])
    return text if isinstance(text, str) else text.decode()


def verify_value(text: str, purpose: str, lifetime: int) -> tuple[Any, datetime] | None:
    """The value and when it was signed; `None` if the signature is invalid, of another browser,
    or older than `lifetime` seconds."""
    if _BROWSER not in flask.session:
        return None  # and the session stays as it is
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
    """Who has entered the right password, and whether to keep them signed in.

    `upstream`: or else, the sign-in through an identity provider.
    """

    user: User
    remember: bool
    upstream: UpstreamSession | None = None


def begin_pending(user: User, remember: bool, upstream: UpstreamSession | None = None) -> None:
    """Note in the browser's cookie that the first factor was right."""
    value = [str(user.id), remember, _fingerprint(user), str(upstream.id) if upstream else None]
    flask.session[_KEY] = sign_value(value, _PURPOSE)


def current_pending() -> PendingMfa | None:
    """Whose second factor is pending in this browser, if they may still sign in."""
    text = flask.session.get(_KEY)
    found = verify_value(text, _PURPOSE, PENDING_LIFETIME) if isinstance(text, str) else None
    if found is None:
        return None
    user_id, remember, fingerprint, *via = found[0]
    user = users.find(UUID(user_id))
    if (
        user is None
        or user.disabled_at
        or not crypto_secrets.is_equal(fingerprint, _fingerprint(user))
    ):
        return None
    upstream = None
    if via and via[0]:
        upstream = identities.unused_session(UUID(via[0]), user.id)
        if upstream is None:  # ended by the provider, or unlinked
            return None
    return PendingMfa(user, bool(remember), upstream)


def notice_id() -> UUID | None:
    """The mail that is owed if the second step in this browser stays undone."""
    try:
        return UUID(flask.session.get(_NOTICE, ""))
    except (ValueError, TypeError, AttributeError):
        return None


def keep_notice(mail_id: UUID | None) -> None:
    """Remember that mail, so that `finish_pending` can withdraw it."""
    if mail_id:
        flask.session[_NOTICE] = str(mail_id)


def finish_pending(user: User) -> None:
    """The second step is done: the mail about it is owed no more. Does not commit."""
    if mail_id := notice_id():
        outbox.withdraw_mail(mail_id, user.id)
    flask.session.pop(_NOTICE, None)
    end_pending()


def end_pending() -> None:
    flask.session.pop(_KEY, None)


def _fingerprint(user: User) -> str:
    return crypto_secrets.digest(user.password_hash or "")
