"""Begin and end a sign-in: server-side sessions on top of Flask-Login.

The cookie holds a random secret, the database its digest. The row's `id` is the `sid` claim.
"""

from datetime import datetime, timedelta
from uuid import UUID

import flask
from flask import Flask, g, request
from flask_login import UserMixin, current_user, login_user, logout_user

from sso import audit, clock, context
from sso.audit.events import Event
from sso.crypto import digests
from sso.extensions import db
from sso.flow.request import TWO_FACTORS
from sso.mfa.proof import PASSWORD, Proof, with_second
from sso.models import BrowserSession, Client, User
from sso.ratelimit import device_cookie
from sso.services import notifications, revocation
from sso.store import sessions
from sso.web import routing
from sso.web.cookies import PageSessions
from sso.web.extensions import login_manager

_KEY = "_user_id"  # where Flask-Login keeps what get_id() gave
_TOUCH_EVERY = timedelta(minutes=1)


class SignedIn(UserMixin):  # type: ignore[misc]  # Flask-Login has no types
    """Flask-Login's user: a visit, identified by the cookie's secret instead of the user."""

    def __init__(self, secret: str, visit: sessions.CurrentSession) -> None:
        self.secret = secret
        self.visit = visit

    def get_id(self) -> str:
        return self.secret


def init_app(app: Flask) -> None:
    """Flask-Login on sessions of our own."""
    app.session_interface = PageSessions()
    # What init_app would do beside: look at each answer for a cookie "remember me" that is never
    # set, and load the user for each template, that of the page about a database away, too.
    app.login_manager = login_manager  # type: ignore[attr-defined]  # where it looks
    login_manager.session_protection = None  # an address may change under way; the secret may not


def is_for_people() -> bool:
    """Whether this request is one of a person's browser, with its cookies."""
    return not routing.is_protocol()


def current_session() -> sessions.CurrentSession | None:
    """Who is signed in on this browser, or `None`."""
    return current_user.visit if current_user.is_authenticated else None


def find_with_client(client_id: str) -> tuple[Client | None, sessions.Presence | None]:
    """The client that asks, and in the same statement who is signed in on this browser."""
    secret = str(flask.session.get(_KEY, ""))
    client, presence = sessions.find_with_client(client_id, digests.digest(secret))
    g.sso_locale = presence.locale if presence else None
    return client, presence


def locale() -> str | None:
    """The language that the account chose of who is signed in on this browser."""
    if "sso_locale" not in g:
        visit = current_session()
        g.sso_locale = visit.user.claims.get("locale") if visit else None
    found: str | None = g.sso_locale
    return found


@login_manager.user_loader  # type: ignore[untyped-decorator]  # nor its decorators
def _load(secret: str) -> SignedIn | None:
    visit = sessions.find_live(digests.digest(secret))
    return SignedIn(secret, visit) if visit else None


def begin(user: User, shown: Proof = PASSWORD, remember: bool = False) -> BrowserSession:
    """Sign the user in, with a new identifier (no session fixation). Does not commit.

    `remember`: the cookie outlives the browser's window ("keep me signed in").

    When the same person signs in again, the session goes on under the new identifier, so that
    re-authentication ends no application's tokens; another person's session ends.

    The caller has locked the user, and read after that which factors there are (`factors.policy`).
    """
    before = current_session()
    now = clock.now()
    secret = digests.make(digests.SESSION)
    if before and before.user.id == user.id:
        session = before.session
    else:
        if before:
            revocation.session(before.session, "another_user")
        session = BrowserSession(user_id=user.id, created_at=now)
    session.digest = digests.digest(secret)
    session.auth_time = session.last_seen_at = now
    session.ends_at = now + timedelta(seconds=context.settings().session_absolute_lifetime)
    session.expires_at = _idle_end(session.ends_at, now)
    session.remembered = remember
    session.amr, session.acr = shown
    session.second_factor_at = now if shown.acr == TWO_FACTORS else None
    session.address = (request.remote_addr or "")[:45]
    session.browser = request.user_agent.string[:200]
    sessions.add(session)
    revocation.surplus_of_user(user.id)
    _give_cookie(secret, sessions.CurrentSession(session, user))
    if not device_cookie.knows(user):
        notifications.new_browser(user, session)
    device_cookie.remember(user)
    audit.event(Event.SIGNED_IN, user=user.id, sid=session.id, amr=shown.amr)
    return session


def step_up(visit: sessions.CurrentSession, second: str) -> None:
    """Note a second factor, given by its methods, in a session that goes on. Does not commit.

    The identifier is a new one, as at each rise of what a session may do. `auth_time` stays: the
    user did not sign in again.
    """
    visit.session.amr, visit.session.acr = with_second(visit.session.amr, second)
    visit.session.second_factor_at = clock.now()
    renew(visit)
    audit.event(Event.STEPPED_UP, user=visit.user.id, sid=visit.session.id, amr=visit.session.amr)


def renew(visit: sessions.CurrentSession) -> None:
    """Let the session go on under a new identifier: copies of the cookie end. Does not commit."""
    secret = digests.make(digests.SESSION)
    visit.session.digest = digests.digest(secret)
    sessions.add(visit.session)
    _give_cookie(secret, visit)


def _give_cookie(secret: str, visit: sessions.CurrentSession) -> None:
    flask.session.clear()
    flask.session.permanent = visit.session.remembered
    login_user(SignedIn(secret, visit))
    flask.session.pop("_id")  # for Flask-Login's session protection, which is off


def sign_out(reason: str = "sign_out") -> None:
    """End the session of this browser, and forget its cookie. Does not commit.

    Without a session nothing changes: a link of another site may have led here.
    """
    visit = current_session()
    if visit is None:
        return
    revocation.session(visit.session, reason)
    if not visit.session.remembered:
        device_cookie.forget(visit.user)
    logout_user()
    flask.session.clear()


def end_others(visit: sessions.CurrentSession, reason: str, grants: bool = False) -> None:
    """End the user's other sessions; this browser alone stays known. Does not commit.

    `grants`: and all grants but this session's. The caller has called `factors.policy.lock`.
    """
    end = revocation.everything_of_user if grants else revocation.sessions_of_user
    end(visit.user.id, reason, visit.session.id)
    device_cookie.remember(visit.user)
    renew(visit)


def touch(visit: sessions.CurrentSession) -> None:
    """Prolong a session in use, once a minute at the most. Does not commit."""
    session = visit.session
    if prolong(session.id, session.last_seen_at, session.ends_at):
        db.session.refresh(session)  # the statement went past the ORM; a page may show it


def prolong(session_id: UUID, last_seen_at: datetime, ends_at: datetime | None) -> bool:
    """As `touch`, for who knows of the session no more than this; whether it was time to."""
    now = clock.now()
    if now - last_seen_at < _TOUCH_EVERY:
        return False
    sessions.touch(session_id, now, _idle_end(ends_at, now))
    flask.session.modified = True  # the cookie is prolonged as well
    return True


def _idle_end(ends_at: datetime | None, now: datetime) -> datetime:
    """When a session used now ends by disuse, or by its absolute end if that comes first."""
    idle = now + timedelta(seconds=context.settings().session_lifetime)
    return min(idle, ends_at) if ends_at else idle
