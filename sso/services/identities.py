"""Upstream identities: who they belong to here, and how they are linked.

Issuer and subject alone say whose an identity is. An email address links it only where the
operator trusts the provider's word; otherwise the person signs in here once.
"""

from typing import NamedTuple

from sqlalchemy.exc import IntegrityError

from sso import audit, clock
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import email_addresses
from sso.config.upstream.provider import Provider
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.models import Identity, User
from sso.services import accounts, notifications, upstream_profiles
from sso.services.checks import RegistrationError
from sso.store import factors, users
from sso.store import identities as stored
from sso.upstream.identity import UpstreamIdentity

MOST = 20  # of one user
_ELSEWHERE = N_("This account is already connected to another account here.")
_TOO_MANY = N_("You have reached the maximum number of connected accounts. Remove one first.")
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
