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

from sso import audit, clock, context, database
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import passwords, secrets
from sso.flow.request import TWO_FACTORS
from sso.mfa import policy
from sso.mfa.policy import Proof, with_second
from sso.models import BrowserSession, UpstreamSession, User
from sso.services import notifications, revocation, roles
from sso.store import identities, sessions, users
from sso.store.password_hashes import PasswordOwner
from sso.store.sessions import CurrentSession

_TOUCH_EVERY = timedelta(minutes=1)


class Browser(NamedTuple):
    """The browser of a request. `is_known`: the user has signed in from it before."""

    ip_address: str
    user_agent: str
    is_known: bool


class NewSecret(NamedTuple):
    """The new secret of a session; only its digest is stored."""

    secret: str
    current: CurrentSession


class SignInEnded(Exception):
    """The provider has ended the sign-in meanwhile, or the identity was removed; roll back."""


@audit.acting
def verify_password(
    actor: Actor,
    user: User | PasswordOwner | None,
    password: str,
    account: str | None,
    failed: Event = Event.SIGN_IN_FAILED,
    reason: str | None = None,
    imported: Collection[str] = (),
) -> bool:
    """Check a user's password; record `failed` and return False if it is wrong.

    This takes as long for an unknown user as for a user with an imported password of one of the
    methods in `imported`. Because it is slow, the caller commits first, so that no transaction
    waits. `account`: the key of the attempt in the queue of `passwords`, `None` for a stranger.
    """
    password_hash = user.password_hash if user and not user.is_disabled else None
    if passwords.verify(password, password_hash, account, imported):
        return True
    if reason is None:
        reason = (
            "password" if password_hash else "disabled or without password" if user else "unknown"
        )
    audit.event(failed, user=user.id if user else None, reason=reason)
    return False


def lock_verified(user: User | PasswordOwner, password: str, account: str | None) -> User | None:
    """Lock the user after `verify_password`; rehash the password if the parameters have changed.

    Returns `None` if the password was changed meanwhile, or the user disabled.
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
    """Record a correct password whose second factor is still missing.

    The user is notified unless the browser is known. `notice`: the id of the mail that this
    browser caused earlier. Returns the id of the mail to withdraw once the second factor follows.
    """
    audit.event(Event.PASSWORD_ACCEPTED, user=user.id)
    return None if browser.is_known else _second_step_missing(user, browser, notice)


@audit.acting
def accept_identity(actor: Actor, user: User, provider: str) -> None:
    """Record a sign-in through an identity provider whose second factor is still missing."""
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
    proof: Proof,
    remember: bool,
    before: CurrentSession | None,
    upstream: UpstreamSession | None = None,
) -> NewSecret:
    """Sign the user in, under a new secret (no session fixation).

    `before`: the previous session of the browser. A session of the same user continues under the
    new secret, so that re-authentication ends no application's tokens; one of another user ends.
    `remember`: the cookie outlives the browser's window. `upstream`: the sign-in at a provider,
    which may be older than now.

    The caller has locked the user, and read the factors after that (`mfa.policy`).
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
    session.amr, session.acr = proof
    session.second_factor_at = now if proof.acr == TWO_FACTORS else None
    session.address = browser.ip_address[:45]
    session.browser = browser.user_agent[:200]
    new = renew(CurrentSession(session, user))
    sessions.note_owner_active(database.session_connection(), user.id, now)
    if upstream and not identities.bind(upstream, session.id):
        raise SignInEnded
    revocation.surplus_of_user(user.id)
    if not browser.is_known:
        notifications.new_browser(user, session)
    audit.event(Event.SIGNED_IN, user=user.id, sid=session.id, amr=proof.amr)
    return new


@audit.acting
def step_up(actor: Actor, current: CurrentSession, second: str) -> NewSecret:
    """Record a second factor, given by its methods, in the current session.

    The session gets a new secret, as whenever it gains rights. `auth_time` stays: the user did not
    sign in again.
    """
    session = current.session
    session.amr, session.acr = with_second(session.amr, second)
    session.second_factor_at = clock.now()
    new = renew(current)
    audit.event(Event.STEPPED_UP, user=current.user.id, sid=session.id, amr=session.amr)
    return new


def renew(current: CurrentSession) -> NewSecret:
    """Give the session a new secret, which invalidates copies of the cookie."""
    secret = secrets.make_secret(secrets.SESSION)
    current.session.digest = secrets.digest(secret)
    sessions.add(current.session)
    return NewSecret(secret, current)


def end_others(current: CurrentSession, reason: str, grants: bool = False) -> NewSecret:
    """End the user's other sessions, and forget their known browsers (`users.forget_devices`).

    `grants`: end all grants but this session's, too. The caller has called `policy.lock`.
    """
    end = revocation.everything_of_user if grants else revocation.sessions_of_user
    end(current.user.id, reason, current.session.id)
    return renew(current)


@audit.acting
def sign_out(actor: Actor, user: User) -> int:
    """End all sessions of a user, as an operator; return how many. Raises `NotAllowed`."""
    roles.require_may_help(actor, user)
    return revocation.sessions_of_user(user.id, "operator")


@audit.acting
def end_some(actor: Actor, user: User, session_ids: Collection[UUID]) -> int:
    """End these sessions of a user, as an operator; return how many. Raises `NotAllowed`.

    Sessions of others are left out.
    """
    roles.require_may_help(actor, user)
    own = {session.id for session in sessions.of_user(user.id)}
    return revocation.some_sessions(user.id, own.intersection(session_ids), "operator")


def prolong(
    connection: Connection, session_id: UUID, last_seen_at: datetime, ends_at: datetime | None
) -> bool:
    """Prolong a session in use, at most once a minute; return whether it was prolonged."""
    now = clock.now()
    if now - last_seen_at < _TOUCH_EVERY:
        return False
    if last_seen_at.date() != now.date():
        sessions.note_active(connection, session_id, now)
    sessions.touch(connection, session_id, now, _idle_end(ends_at, now))
    return True


def _idle_end(ends_at: datetime | None, now: datetime) -> datetime:
    """Return the end of a session that is used now: its idle timeout or its absolute end."""
    idle = now + timedelta(seconds=context.settings().session_lifetime)
    return min(idle, ends_at) if ends_at else idle
