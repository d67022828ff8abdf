"""The session of a browser: Flask-Login on server-side sessions.

The cookie holds a random secret, the database its digest. The row's `id` is the `sid` claim. An
identity to be linked waits in the browser's signed cookie until the user has signed in here.
"""

from dataclasses import asdict
from datetime import datetime
from functools import cached_property
from uuid import UUID

import flask
from flask import Flask, g, request
from flask_login import UserMixin, current_user, login_user, logout_user
from sqlalchemy import Connection

from sso import audit, clock, context, database
from sso.config.upstream.provider import Provider
from sso.crypto import secrets
from sso.extensions import db
from sso.mfa.policy import PASSWORD, Proof
from sso.models import BrowserSession, UpstreamSession, User
from sso.oauth import document_clients
from sso.ratelimit import device_cookie
from sso.services import authentication, client_documents, revocation, second_factors
from sso.store import sessions
from sso.store.clients import RegisteredClient
from sso.store.redemption import Pushed
from sso.store.sessions import CurrentSession
from sso.upstream.identity import UpstreamIdentity
from sso.web import routing
from sso.web.cookies import PageSessions
from sso.web.routing import login_manager

_KEY = "identity"
_LIFETIME = 1800  # seconds, to find a password or a mail
_KEPT = ("issuer", "subject", "email", "email_verified", "name")


def keep_pending_identity(provider: Provider, identity: UpstreamIdentity) -> None:
    """Store an identity to be linked, without groups and tokens; it replaces an earlier one."""
    values = {name: value for name, value in asdict(identity).items() if name in _KEPT}
    values["email"], values["name"] = (identity.email or "")[:320], identity.name[:200]
    flask.session[_KEY] = [clock.timestamp(clock.now()), provider.id, values]


def pending_identity() -> tuple[Provider, UpstreamIdentity] | None:
    """Return the identity that waits in this browser, with its provider."""
    if _KEY not in flask.session:
        return None
    at, provider_id, values = flask.session[_KEY]
    provider = context.upstreams().find(provider_id)
    if provider is None or not 0 <= clock.timestamp(clock.now()) - at <= _LIFETIME:
        return None
    return provider, UpstreamIdentity(**values)


def forget_pending_identity() -> None:
    flask.session.pop(_KEY, None)


def clear_all_but_pending_identity() -> None:
    """Clear the cookie for another session, except for the pending identity."""
    pending = flask.session.get(_KEY)
    flask.session.clear()
    if pending:
        flask.session[_KEY] = pending


_LINK_USED = "link_used"  # in the cookie, until the next sign-in


class SessionUser(UserMixin):  # type: ignore[misc]  # Flask-Login has no types
    """Flask-Login's user, identified by the secret of a session, which is looked up lazily."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    @cached_property
    def current_session(self) -> CurrentSession | None:
        return sessions.find_live(secrets.digest(self.secret))

    @property
    def is_authenticated(self) -> bool:
        return self.current_session is not None

    def get_id(self) -> str:
        return self.secret


def init_app(app: Flask) -> None:
    """Set up Flask-Login and the session cookie."""
    app.session_interface = PageSessions()
    login_manager.session_protection = None  # an IP address may change; the secret may not
    login_manager.init_app(app)


@login_manager.user_loader
def _load(secret: str) -> SessionUser:
    return SessionUser(secret)


def current_session() -> CurrentSession | None:
    """Return the session that is signed in in this browser, or `None`."""
    return current_user.current_session if current_user.is_authenticated else None


def find_with_client(
    connection: Connection, client_id: str
) -> tuple[RegisteredClient | None, sessions.ResourceOwner | None]:
    """Return the client and the signed-in user of this browser, by one statement."""
    digest = secrets.digest(current_user.get_id() or "")
    client, owner = sessions.find_with_client(connection, client_id, digest)
    return _current(connection, client_id, digest, client, owner)


def find_with_client_and_pushed(
    connection: Connection, client_id: str, pushed_digest: str
) -> tuple[RegisteredClient | None, sessions.ResourceOwner | None, Pushed | None]:
    """Do as `find_with_client`, and return the pushed request with this digest."""
    digest = secrets.digest(current_user.get_id() or "")
    client, owner, pushed = sessions.find_with_client_and_pushed(
        connection, client_id, digest, pushed_digest
    )
    return *_current(connection, client_id, digest, client, owner), pushed


def _current(
    connection: Connection,
    client_id: str,
    digest: str,
    client: RegisteredClient | None,
    owner: sessions.ResourceOwner | None,
) -> tuple[RegisteredClient | None, sessions.ResourceOwner | None]:
    """Return both, the client as its document describes it, and note the language of the user."""
    if client_documents.is_url(client_id):
        client = document_clients.current(connection, client_id, client)
        if client is not None and owner is None:
            owner = sessions.find_owner(connection, digest)
    g.sso_locale = owner.locale if owner else None
    return client, owner


def locale() -> str | None:
    """Return the language of the account that is signed in in this browser."""
    if "sso_locale" not in g:
        current = None if routing.is_protocol() else current_session()
        g.sso_locale = current.user.claims.get("locale") if current else None
    tag: str | None = g.sso_locale
    return tag


def zoneinfo() -> object:
    """Return the time zone of the account that is signed in in this browser, unchecked."""
    current = current_session()
    return current.user.claims.get("zoneinfo") if current else None


def browser(user: User) -> authentication.Browser:
    """Return the browser of this request by a user."""
    return authentication.Browser(
        request.remote_addr or "", request.user_agent.string, device_cookie.knows(user)
    )


def begin(
    user: User,
    proof: Proof = PASSWORD,
    remember: bool = False,
    upstream: UpstreamSession | None = None,
) -> BrowserSession:
    """Begin a session with `authentication.begin`, and remember the browser. Does not commit.

    If a mailed link was just used in this browser, the session may add the first factor.
    """
    secret = flask.session.get(_LINK_USED)
    new = authentication.begin(
        audit.USER, user, browser(user), proof, remember, current_session(), upstream
    )
    _put_into_cookie(new)  # clears its previous content
    device_cookie.remember(user)
    if secret and proof == PASSWORD and upstream is None:
        second_factors.allow_by_link(audit.USER, user, new.current.session, secret)
    return new.current.session


def remember_link(user: User) -> None:
    """Remember in this browser that a mailed link set the password. Does not commit."""
    flask.session.pop(_LINK_USED, None)
    if secret := second_factors.remember_link(user):
        flask.session[_LINK_USED] = secret


def step_up(current: CurrentSession, second: str) -> None:
    """Step the session up (`authentication.step_up`). Does not commit."""
    _put_into_cookie(authentication.step_up(audit.USER, current, second))


def end_others(current: CurrentSession, reason: str, grants: bool = False) -> None:
    """End the user's other sessions; only this browser stays known. Does not commit."""
    _put_into_cookie(authentication.end_others(current, reason, grants))
    device_cookie.remember(current.user)


def renew(current: CurrentSession) -> None:
    """Give the session a new secret (`authentication.renew`). Does not commit."""
    _put_into_cookie(authentication.renew(current))


def _put_into_cookie(new: authentication.NewSecret) -> None:
    clear_all_but_pending_identity()
    g.pop("csrf_token", None)  # a form of this response needs a token of the new cookie
    flask.session.permanent = new.current.session.remembered
    user = SessionUser(new.secret)
    user.current_session = new.current
    login_user(user)
    flask.session.pop("_id", None)  # a digest of IP address and browser, which nobody reads


def sign_out(reason: str = "sign_out") -> None:
    """End the session of this browser, and clear its cookie. Does not commit.

    Without a session nothing changes: another site may have linked here.
    """
    current = current_session()
    if current is None:
        return
    revocation.session(current.session, reason)
    if not current.session.remembered:
        device_cookie.forget(current.user)
    logout_user()
    flask.session.clear()


def forget(user: User) -> None:
    """Sign out a user who was deleted, and forget this browser."""
    device_cookie.forget(user)
    logout_user()
    flask.session.clear()


def touch(current: CurrentSession) -> None:
    """Prolong a session in use. Does not commit."""
    session = current.session
    if prolong(database.session_connection(), session.id, session.last_seen_at, session.ends_at):
        db.session.refresh(session)  # the statement bypassed the ORM; a page may show the session


def prolong(
    connection: Connection, session_id: UUID, last_seen_at: datetime, ends_at: datetime | None
) -> bool:
    """Prolong a session and its cookie (`authentication.prolong`); return whether it was due."""
    is_prolonged = authentication.prolong(connection, session_id, last_seen_at, ends_at)
    if is_prolonged:
        flask.session.modified = True  # the cookie is prolonged as well
    return is_prolonged
