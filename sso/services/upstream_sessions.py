"""Sign-ins through upstream identities, and how their providers end them."""

from sso import audit, context
from sso.audit import Actor
from sso.config.upstream.provider import Provider
from sso.crypto import secrets
from sso.models import Identity, UpstreamSession
from sso.services import revocation, upstream_profiles
from sso.store import identities, users
from sso.upstream.identity import UpstreamIdentity

_PURPOSE = "tokens of upstream providers"
_LONGEST = 16 * 1024


def note(identity: Identity, found: UpstreamIdentity) -> UpstreamSession:
    """Note a sign-in through an identity; `authentication.begin` gives it a session."""
    session = UpstreamSession(identity_id=identity.id, sid=found.sid, amr=found.amr)
    session.has_two_factors, session.auth_time = found.has_two_factors, found.auth_time
    session.sealed_id_token = seal(found.id_token)
    session.sealed_refresh_token = seal(found.refresh_token)
    session.sealed_access_token = seal(found.access_token)
    identities.add_session(session)
    return session


def seal(token: str | None) -> str | None:
    """A provider's token, encrypted; `None` if it is too long to keep."""
    if not token or len(token) > _LONGEST:
        return None
    return secrets.encrypt(context.settings().secret_keys, _PURPOSE, token.encode())


def opened(sealed: str | None) -> str | None:
    """A provider's token, unless the secret key that encrypted it is gone."""
    keys = context.settings().secret_keys
    try:
        return secrets.decrypt(keys, _PURPOSE, sealed).decode() if sealed else None
    except secrets.InvalidToken:
        return None


@audit.acting
def end(actor: Actor, issuer: str, subject: str | None, sid: str | None) -> int:
    """End the sessions that a provider says are over; returns how many.

    `sid`: only those of this session of the provider's, and those of which it gave no `sid`.
    """
    ended = 0
    for identity in identities.meant_by(issuer, subject, sid):
        users.lock_any(identity.user_id)  # before its sessions, as everywhere
        begun = identities.sessions_of(identity.id, sid, unnamed=subject is not None)
        ended += revocation.some_sessions(identity.user_id, begun, "upstream_logout")
        identities.forget_waiting(identity.id, sid)
    return ended


@audit.acting
def confirm(
    actor: Actor,
    provider: Provider,
    session: UpstreamSession,
    identity: Identity,
    found: UpstreamIdentity | None,
) -> None:
    """Take over what a provider answers to a recheck; on `None`, the session ends."""
    user = users.lock_any(identity.user_id)
    if found is None:
        begun = [session.session_id] if session.session_id else []
        revocation.some_sessions(identity.user_id, begun, "upstream_recheck")
        return
    if found.refresh_token:
        identities.keep_token(session.id, seal(found.refresh_token))
    if user and user.disabled_at is None:
        upstream_profiles.take_over(actor, provider, user, found)
