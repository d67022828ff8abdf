"""Sign-ins: check a password; begin, step up, prolong and end a session.

Nothing here knows of HTTP: a function that gives a session a new secret returns it, and
`endpoints.browser_session` puts it into the cookie. Nothing commits.
"""

from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import passwords, secrets
from sso.flow.request import TWO_FACTORS
from sso.mfa import policy
from sso.mfa.policy import Proof, with_second
from sso.models import BrowserSession, UpstreamSession, User
from sso.services import notifications, revocation
from sso.store import identities, sessions, users
from sso.store.sessions import CurrentSession

_TOUCH_EVERY = timedelta(minutes=1)


class Browser(NamedTuple):
    """Where a request comes from. `is_known`: the user has signed in from this browser before."""

    ip_address: str
    user_agent: str
    is_known: bool


class NewSecret(NamedTuple):
    """What identifies the session from now on; the database has its digest alone."""

    secret: str
    current: CurrentSession


class SignInEnded(Exception):
    """Meanwhile the provider has ended the sign-in, or its identity was removed; to be rolled
    back."""


@audit.acting
def verify_password(
    actor: Actor,
    user: User | None,
    password: str,
    account: str | None,
    failed: Event = Event.SIGN_IN_FAILED,
    reason: str | None = None,
    imported: Collection[str] = (),
) -> bool:
    """Whether it is this user's password; if not, `failed` is recorded.

    It takes as long for an unknown user, and for one with an imported password if `imported` has
    the methods of these. That is long: the caller has committed before, so that no transaction
    waits. `account`: who waits in the queue of `passwords`, or `None` for a stranger.
    """
    known = user.password_hash if user and user.disabled_at is None else None
    if passwords.verify(password, known, account, imported):
        return True
    if reason is None:
        reason = "password" if known else "disabled or without password" if user else "unknown"
    audit.event(failed, user=user.id if user else None, reason=reason)
    return False


def lock_verified(user: User, password: str, account: str | None) -> User | None:
    """Lock a user whose password has been verified, and hash it as is done today.

    `None` if the password was changed meanwhile, or the user disabled.
    """
    verified, rehashed = user.password_hash or "", None
    with suppress(passwords.Busy):  # then at another sign-in
        if passwords.needs_rehash(verified):
            rehashed = passwords.hash_password(password, account)
    locked = users.lock(user.id)
    if locked is None or locked.password_hash != verified:
        return None
    locked.password_hash = rehashed or verified
    return locked


@audit.acting
def accept_password(actor: Actor, user: User, browser: Browser, notice: UUID | None) -> UUID | None:
    """Record a right password to which a second factor is missing.

    The owner is told, unless the browser is known. `notice`: the mail that this browser has caused
    before. Gives the id of the mail to withdraw when the second factor has been shown.
    """
    audit.event(Event.PASSWORD_ACCEPTED, user=user.id)
    return None if browser.is_known else _second_step_missing(user, browser, notice)


@audit.acting
def accept_identity(actor: Actor, user: User, provider: str) -> None:
    """Record a sign-in through an identity provider to which a second factor is missing."""
    audit.event(Event.IDENTITY_ACCEPTED, user=user.id, provider=provider)


@audit.acting
def fail_second_factor(
    actor: Actor, user: User, method: str, browser: Browser | None, notice: UUID | None
) -> UUID | None:
    """Record a wrong second factor; see `accept_password`. `browser`: `None` in a session."""
    audit.event(Event.SECOND_FACTOR_FAILED, user=user.id, method=method)
    return _second_step_missing(user, browser, notice) if browser else None


def _second_step_missing(user: User, browser: Browser, notice: UUID | None) -> UUID | None:
    delay = timedelta(seconds=policy.PENDING_LIFETIME)
    return notifications.second_step_missing(
        user, browser.user_agent, browser.ip_address, delay, notice
    )


@audit.acting
def begin(
    actor: Actor,
    user: User,
    browser: Browser,
    shown: Proof,
    remember: bool,
    before: CurrentSession | None,
    upstream: UpstreamSession | None = None,
) -> NewSecret:
    """Sign the user in, under a new secret (no session fixation).

    `before`: the session that the browser had. If it is the same person's, it goes on under the
    new secret, so that re-authentication ends no application's tokens; another person's ends.
    `remember`: the cookie outlives the browser's window. `upstream`: the person was signed in
    through it, perhaps some time ago.

    The caller has locked the user, and read after that which factors there are (`mfa.policy`).
    """
    now = clock.now()
    auth_time = upstream.auth_time if upstream and upstream.auth_time else now
    if before and before.user.id == user.id:
        session = before.session
        auth_time = max(auth_time, session.auth_time)
    else:
        if before:
            revocation.session(before.session, "another_user")
        session = BrowserSession(user_id=user.id, created_at=now)
    session.auth_time, session.last_seen_at = auth_time, now
    session.ends_at = now + timedelta(seconds=context.settings().session_absolute_lifetime)
    session.expires_at = _idle_end(session.ends_at, now)
    session.remembered = remember
    session.amr, session.acr = shown
    session.second_factor_at = now if shown.acr == TWO_FACTORS else None
    session.address = browser.ip_address[:45]
    session.browser = browser.user_agent[:200]
    new = renew(CurrentSession(session, user))
    if upstream and not identities.bind(upstream, session.id):
        raise SignInEnded
    revocation.surplus_of_user(user.id)
    if not browser.is_known:
        notifications.new_browser(user, session)
    audit.event(Event.SIGNED_IN, user=user.id, sid=session.id, amr=shown.amr)
    return new


@audit.acting
def step_up(actor: Actor, current: CurrentSession, second: str) -> NewSecret:
    """Note a second factor, given by its methods, in a session that goes on.

    The secret is a new one, as at each rise of what a session may do. `auth_time` stays: the user
    did not sign in again.
    """
    session = current.session
    session.amr, session.acr = with_second(session.amr, second)
    session.second_factor_at = clock.now()
    new = renew(current)
    audit.event(Event.STEPPED_UP, user=current.user.id, sid=session.id, amr=session.amr)
    return new


def renew(current: CurrentSession) -> NewSecret:
    """Let the session go on under a new secret: copies of the cookie end."""
    secret = secrets.make_secret(secrets.SESSION)
    current.session.digest = secrets.digest(secret)
    sessions.add(current.session)
    return NewSecret(secret, current)


def end_others(current: CurrentSession, reason: str, grants: bool = False) -> NewSecret:
    """End the user's other sessions; no browser is known any more (`users.forget_devices`).

    `grants`: and all grants but this session's. The caller has called `policy.lock`.
    """
    end = revocation.everything_of_user if grants else revocation.sessions_of_user
    end(current.user.id, reason, current.session.id)
    return renew(current)


def prolong(
    connection: Connection, session_id: UUID, last_seen_at: datetime, ends_at: datetime | None
) -> bool:
    """Prolong a session in use, once a minute at the most; whether it was time to."""
    now = clock.now()
    if now - last_seen_at < _TOUCH_EVERY:
        return False
    sessions.touch(connection, session_id, now, _idle_end(ends_at, now))
    return True


def _idle_end(ends_at: datetime | None, now: datetime) -> datetime:
    """When a session used now ends by disuse, or by its absolute end if that comes first."""
    idle = now + timedelta(seconds=context.settings().session_lifetime)
    return min(idle, ends_at) if ends_at else idle
