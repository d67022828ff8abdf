"""People of directories: disabled when the directory bars them, and enabled again.

They have no password here. What the directory says of them is looked up again and again, because
nobody else would tell.
"""

import logging
from dataclasses import replace

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config.upstream.provider import Provider
from sso.extensions import db
from sso.models import Identity, User
from sso.services import api_tokens, revocation, staff, unlinking, upstream_profiles
from sso.services.staff import NotAllowed
from sso.store import identities as stored
from sso.store import users
from sso.upstream.identity import UpstreamIdentity

logger = logging.getLogger("sso.services")


def of(user: User) -> Provider | None:
    """The directory whose password a user signs in with, for want of one here."""
    if user.password_hash is not None:
        return None
    managed = (one for one in stored.of_user(user.id) if unlinking.is_managed(user, one))
    return next((context.upstreams().find(one.provider) for one in managed), None)


@audit.acting
def shut_out(actor: Actor, provider: Provider, identity: Identity, reason: str) -> None:
    """Disable the user of an identity that the directory bars; everything ends.

    The last administrator is not disabled, as nowhere else: only what is open ends.
    """
    user = users.lock(identity.user_id)
    if user is None:
        return
    try:
        staff.keep_administrators(replace(actor, by=provider.id), [user])
    except NotAllowed as error:
        logger.warning("directory %s: user %s is not disabled: %s", provider.id, user.id, error)
        revocation.everything_of_user(user.id, "barred")
        return
    user.disabled_at = identity.barred_at = clock.now()
    db.session.flush()
    revocation.everything_of_user(user.id, "user_disabled")
    api_tokens.end_of(actor, [user.id], "owner_disabled")
    audit.event(Event.USER_DISABLED, by=provider.id, user=user.id, reason=reason)


@audit.acting
def readmit(actor: Actor, provider: Provider, found: UpstreamIdentity) -> None:
    """Enable a user whom only the directory had shut out, and who has signed in there again."""
    identity = stored.find(found.issuer, found.subject)
    if identity is None or identity.barred_at is None:
        return
    user = users.lock_any(identity.user_id)
    if user is None or user.disabled_at != identity.barred_at:
        return
    user.disabled_at = identity.barred_at = None
    db.session.flush()
    audit.event(Event.USER_ENABLED, by=provider.id, user=user.id)


@audit.acting
def confirm(actor: Actor, provider: Provider, identity: Identity, found: UpstreamIdentity) -> None:
    """Take over what the directory says of somebody who may still sign in."""
    if user := users.lock(identity.user_id):
        upstream_profiles.take_over(actor, provider, user, found)
