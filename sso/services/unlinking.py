"""Upstream identities, continued: how they are removed, and what is left to sign in with."""

from collections.abc import Iterable
from uuid import UUID

from sso import audit, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.i18n import N_
from sso.models import Identity, User
from sso.services import changes as differences
from sso.services import notifications, revocation, staff
from sso.services.identities import LinkRefused
from sso.store import factors, users
from sso.store import identities as stored

_LAST = N_("This is your only way to sign in. Set a password or add a passkey first.")
_MANAGED = N_("Your administrator manages this connection. You cannot remove it.")
_GONE = N_("This account was already removed.")
_THEIR_LAST = N_("This is the person's only way to sign in. Afterwards, send the invitation again.")
_THEIR_MANAGED = N_("The directory will no longer disable this account when the person leaves.")
_COMES_BACK = N_(
    "The next sign-in there with this person's email address connects it again, because the "
    "provider is trusted. Disable the account here to prevent that."
)


@audit.acting
def unlink(actor: Actor, user: User, identity_id: UUID, keep: UUID | None = None) -> None:
    """Remove an identity of one's own, and end the sessions that it began, but for `keep`.

    The caller has locked the user. Raises `LinkRefused` if it is the last way in, or managed.
    """
    chosen = _find(user, identity_id)
    if chosen is None:
        raise LinkRefused(_GONE)
    if is_managed(user, chosen):
        raise LinkRefused(_MANAGED)
    if not has_other_way_in(user, identity=chosen):
        raise LinkRefused(_LAST)
    _remove(actor, user, chosen, keep)


@audit.acting
def remove(actor: Actor, user: User, identity_id: UUID, *, warned: Iterable[str]) -> None:
    """Remove an identity of a user, and end the sessions that it began.

    Also the last way in, if the operator was `warned` (see `consequences`). Raises `LookupError`,
    `NotAllowed` and `Changed`.
    """
    staff.require_admin(actor)
    locked = users.lock_any(user.id)
    chosen = _find(user, identity_id)
    if locked is None or chosen is None:
        raise LookupError(identity_id)
    now = {"warnings": consequences(locked, chosen)}
    differences.require_unchanged({"warnings": list(warned)}, now)
    _remove(actor, locked, chosen)


def consequences(user: User, identity: Identity) -> list[str]:
    """What an operator should know before removing an identity; to be translated."""
    provider = context.upstreams().find(identity.provider)
    return [
        text
        for text, applies in (
            (_THEIR_LAST, not has_other_way_in(user, identity=identity)),
            (_THEIR_MANAGED, is_managed(user, identity)),
            (_COMES_BACK, provider is not None and provider.vouches_for(user.email)),
        )
        if applies
    ]


def _find(user: User, identity_id: UUID) -> Identity | None:
    return next((one for one in stored.of_user(user.id) if one.id == identity_id), None)


def _remove(actor: Actor, user: User, chosen: Identity, keep: UUID | None = None) -> None:
    begun = [one for one in stored.sessions_of(chosen.id) if one != keep]
    revocation.some_sessions(user.id, begun, "identity_removed")
    stored.remove(user.id, chosen.id)
    audit.event(Event.IDENTITY_UNLINKED, by=actor.by, user=user.id, provider=chosen.provider)
    provider = context.upstreams().find(chosen.provider)
    notifications.identity_removed(
        user, provider.name if provider else chosen.provider, chosen.email or ""
    )


def is_managed(user: User, identity: Identity) -> bool:
    """Whether an account lives by a directory: without it, nobody would notice who has left."""
    provider = context.upstreams().find(identity.provider)
    return user.password_hash is None and provider is not None and not provider.REDIRECTS


def has_other_way_in(
    user: User, *, identity: Identity | None = None, passkey: UUID | None = None
) -> bool:
    """Whether a user can still sign in without this identity, or without this passkey.

    An identity whose provider is no longer configured is no way in.
    """
    providers = {one.id for one in context.upstreams()}
    others = (
        one.provider in providers
        for one in stored.of_user(user.id)
        if identity is None or one.id != identity.id
    )
    if user.password_hash is not None or any(others):
        return True
    return any(one.id != passkey for one in factors.passkeys_of_user(user.id))
