"""Upstream identities: who they belong to here, how they are linked, how they are removed.

Issuer and subject alone say whose an identity is. An email address links it only where the
operator trusts the provider's word; otherwise the person signs in here once.
"""

from typing import NamedTuple
from uuid import UUID

from sqlalchemy.exc import IntegrityError

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import email_addresses
from sso.config.upstream.provider import Provider
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.models import Identity, User
from sso.services import accounts, notifications, revocation, upstream_profiles
from sso.services.checks import RegistrationError
from sso.store import factors, users
from sso.store import identities as stored
from sso.store import passkeys as stored_passkeys
from sso.upstream.identity import UpstreamIdentity

MOST = 20  # of one user
_ELSEWHERE = N_("This account is already connected to another account here.")
_TOO_MANY = N_("You have reached the maximum number of connected accounts. Remove one first.")
_LAST = N_("This is your only way to sign in. Set a password or add a passkey first.")
_MANAGED = N_("Your administrator manages this connection. You cannot remove it.")
_GONE = N_("This account was already removed.")
_DISABLED = N_("Your account here is disabled. Ask your administrator.")


class LinkRefused(ValueError):
    """It cannot be linked or removed; `str()` says why, to its owner. To be rolled back."""


class SignIn(NamedTuple):
    """The user, locked, and the identity that signs them in."""

    user: User
    identity: Identity


class ProveAccount(NamedTuple):
    """Nothing here is known to be this person's: they sign in here once, to link the identity.

    Or they make an account, for an address that they prove by mail, where the provider allows it.
    """


class Refused(NamedTuple):
    """`text` tells the person why."""

    text: str


Resolution = SignIn | ProveAccount | Refused


@audit.acting
def resolve(actor: Actor, provider: Provider, found: UpstreamIdentity) -> Resolution:
    """Who this is here. Links the identity, or makes an account, where the operator allows it.

    On `Refused`, nothing but the event is written.
    """
    identity = stored.find(found.issuer, found.subject)
    user = users.lock(identity.user_id) if identity else None
    if identity is None:
        email = upstream_profiles.email_of(found)
        if not (email and found.email_verified and provider.vouches_for(email)):
            return ProveAccount()
        known = users.find_by_email(email)
        if known is None and provider.sign_up:
            user = _new_user(actor, email, found)
        elif known and known.disabled_at is None:
            user = _owner(known, email, found.issuer)
        if user:
            identity = _add(user, provider, found, is_told=known is not None)
        elif known is None or known.disabled_at is None:
            return ProveAccount()
    if user is None or identity is None:
        audit.event(
            Event.SIGN_IN_FAILED,
            user=identity.user_id if identity else None,
            method=provider.id,
            reason="disabled",
        )
        return Refused(_DISABLED)
    stored.use(identity, provider.id, clock.now())
    try:
        upstream_profiles.take_over(actor, provider, user, found)
    except RegistrationError:
        raise LinkRefused(_ELSEWHERE) from None
    return SignIn(user, identity)


def _owner(known: User, email: str, issuer: str) -> User | None:
    """The account with a verified address, if that proves whose it is.

    Who has an identity of this issuer has left it with another: the address was given to somebody
    else there.

    An address that nobody has confirmed here may be a stranger's account (pre-hijacking): only one
    that nobody could sign in to so far is taken over.
    """
    user = users.lock(known.id)
    if user is None or user.email != email or not policy.email_settled(user):
        return None
    linked = stored.of_user(user.id)
    if any(one.issuer == issuer for one in linked):
        return None
    if user.email_verified:
        return user
    if user.password_hash or factors.of_user(user.id) or linked:
        return None
    user.email_verified = True
    return user


def _new_user(actor: Actor, email: str, found: UpstreamIdentity) -> User | None:
    name = upstream_profiles.name_of(found) or email.partition("@")[0]
    try:
        return accounts.sign_up(actor, email=email, name=name, password_hash=None)
    except RegistrationError:  # made at this moment
        return None


@audit.acting
def link(actor: Actor, user: User, provider: Provider, found: UpstreamIdentity) -> Identity:
    """Let this identity sign in as a user, who has proven both. The caller has locked the user.

    Raises `LinkRefused`.
    """
    known = stored.find(found.issuer, found.subject)
    if known and known.user_id == user.id:
        return known
    if known:
        raise LinkRefused(_ELSEWHERE)
    if len(stored.of_user(user.id)) >= MOST:
        raise LinkRefused(_TOO_MANY)
    return _add(user, provider, found, is_told=True)


def _add(user: User, provider: Provider, found: UpstreamIdentity, is_told: bool) -> Identity:
    identity = Identity(
        user_id=user.id, provider=provider.id, issuer=found.issuer, subject=found.subject
    )
    identity.email = (found.email or "")[: email_addresses.LONGEST] or None
    try:
        stored.add(identity)
    except IntegrityError:  # linked at this moment
        db.session.rollback()
        raise LinkRefused(_ELSEWHERE) from None
    audit.event(Event.IDENTITY_LINKED, user=user.id, provider=provider.id)
    if is_told:
        notifications.identity_added(user, provider.name, identity.email or "")
    return identity


@audit.acting
def unlink(actor: Actor, user: User, identity_id: UUID, keep: UUID | None = None) -> None:
    """Remove an identity, and end the sessions that it began, but for `keep`.

    The caller has locked the user. Raises `LinkRefused` if it is the last way in, or managed.
    """
    known = stored.of_user(user.id)
    chosen = next((one for one in known if one.id == identity_id), None)
    if chosen is None:
        raise LinkRefused(_GONE)
    if is_managed(user, chosen):
        raise LinkRefused(_MANAGED)
    if not has_other_way_in(user, identity=chosen):
        raise LinkRefused(_LAST)
    begun = [one for one in stored.sessions_of(chosen.id) if one != keep]
    revocation.some_sessions(user.id, begun, "identity_removed")
    stored.remove(user.id, chosen.id)
    audit.event(Event.IDENTITY_UNLINKED, user=user.id, provider=chosen.provider)
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
    return any(one.id != passkey for one in stored_passkeys.of_user(user.id))
