"""Sign-ins through upstream identities, and how their providers end them."""

from sso import context
from sso.crypto import encryption
from sso.models import Identity, UpstreamSession
from sso.store import identities
from sso.upstream.identity import UpstreamIdentity

_PURPOSE = "tokens of upstream providers"
_LONGEST = 16 * 1024


def note(identity: Identity, found: UpstreamIdentity) -> UpstreamSession:
    """Note a sign-in through an identity; `authentication.begin` gives it a session."""
    session = UpstreamSession(identity_id=identity.id, sid=found.sid, amr=found.amr)
    session.has_two_factors, session.auth_time = found.has_two_factors, found.auth_time
    session.sealed_id_token = seal(found.id_token)
    session.sealed_refresh_token = seal(found.refresh_token)
    identities.add_session(session)
    return session


def seal(token: str | None) -> str | None:
    """A provider's token, encrypted; `None` if it is too long to keep."""
    if not token or len(token) > _LONGEST:
        return None
    return encryption.encrypt(context.settings().secret_keys, _PURPOSE, token.encode())


def opened(sealed: str | None) -> str | None:
    """A provider's token, unless the secret key that encrypted it is gone."""
    keys = context.settings().secret_keys
    try:
        return encryption.decrypt(keys, _PURPOSE, sealed).decode() if sealed else None
    except encryption.InvalidToken:
        return None
