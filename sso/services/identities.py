"""Upstream identities: whose they are, how they are linked and removed, how sessions end.

Issuer and subject alone say whose an identity is. An email address links it only where the operator
trusts the provider's word; otherwise the person signs in here once.

At each sign-in, profile and groups are taken over as the provider's settings say. A person of a
directory has no password here and is disabled when the directory bars them: what it says of them is
looked up again and again, because nobody else would tell.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy.exc import IntegrityError

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import email_addresses
from sso.config.upstream.provider import Provider
from sso.crypto import secrets
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.models import Identity, UpstreamSession, User
from sso.services import accounts, api_tokens, checks, notifications, revocation, staff
from sso.services import changes as differences
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.services.staff import NotAllowed
from sso.store import factors, identities, users
from sso.upstream.identity import UpstreamIdentity

logger = logging.getLogger("sso.services")


@audit.acting
def take_over_profile(
    actor: Actor, provider: Provider, user: User, found: UpstreamIdentity
) -> None:
    """Take over the mapped groups, and of an account that lives by a directory name and email.

    Groups that stand in no mapping are left alone. The email has to be free, and one that the
    provider is trusted for. Raises `Invalid` if somebody takes it at this moment.
    """
    changes = _profile(provider, user, found)
    added, removed = _memberships(provider, user, found)
    if added or removed:
        changes["memberships"] = ListEdit(added, removed)
    if not changes:
        return
    actor = replace(actor, by=provider.id)
    try:
        accounts.update(actor, user.id, **changes)
    except NotAllowed as error:
        logger.warning("user %s stays in the group that administers: %s", user.id, error)
        kept = tuple(one for one in removed if one != context.settings().admin_group)
        accounts.update(actor, user.id, **{**changes, "memberships": ListEdit(added, kept)})


def _memberships(
    provider: Provider, user: User, found: UpstreamIdentity
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The groups that the user comes into, and those that they leave."""
    if found.groups is None or not provider.groups:
        return (), ()
    members = {ours for theirs, ours in provider.groups.items() if theirs in found.groups}
    had = set(user.groups)
    removed = (set(provider.groups.values()) - members) & had
    added = sorted(members - had)
    room = max(0, checks.MAX_GROUPS - len(had - removed))
    if added[room:]:
        logger.warning("user %s is in too many groups to come into another", user.id)
    return tuple(added[:room]), tuple(sorted(removed))


def _profile(provider: Provider, user: User, found: UpstreamIdentity) -> dict[str, Any]:
    """What has changed in the directory that an account lives by. SCIM's word goes before it."""
    is_provisioned = user.user_name is not None or user.external_id is not None
    if provider.REDIRECTS or user.password_hash is not None or is_provisioned:
        return {}
    changes: dict[str, Any] = {}
    if (name := name_of(found)) and name != user.name:
        changes["name"] = name
    email = email_of(found)
    if email and email != user.email and found.email_verified and provider.vouches_for(email):
        if users.find_by_email(email) is None:
            changes |= {"email": email, "email_verified": True}
        else:
            logger.info("user %s keeps the email: another has that of the directory", user.id)
    return changes


def name_of(found: UpstreamIdentity) -> str:
    """The name, if it can be one here."""
    name = " ".join(found.name.split())
    return "" if checks.text_error(checks.NAME, name) else name


def email_of(found: UpstreamIdentity) -> str | None:
    """The email address, if it can be one here."""
    try:
        return email_addresses.normalized(found.email) if found.email else None
    except ValueError:
        return None


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
    identity = identities.find(found.issuer, found.subject)
    user = users.lock(identity.user_id) if identity else None
    if identity is None:
        email = email_of(found)
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
    identities.use(identity, provider.id, clock.now())
    try:
        take_over_profile(actor, provider, user, found)
    except Invalid:
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
    linked = identities.of_user(user.id)
    if any(one.issuer == issuer for one in linked):
        return None
    if user.email_verified:
        return user
    if user.password_hash or factors.of_user(user.id) or linked:
        return None
    user.email_verified = True
    return user


def _new_user(actor: Actor, email: str, found: UpstreamIdentity) -> User | None:
    name = name_of(found) or email.partition("@")[0]
    try:
        return accounts.sign_up(actor, email=email, name=name, password_hash=None)
    except Invalid:  # made at this moment
        return None


@audit.acting
def link(actor: Actor, user: User, provider: Provider, found: UpstreamIdentity) -> Identity:
    """Let this identity sign in as a user, who has proven both. The caller has locked the user.

    Raises `LinkRefused`.
    """
    known = identities.find(found.issuer, found.subject)
    if known and known.user_id == user.id:
        return known
    if known:
        raise LinkRefused(_ELSEWHERE)
    if len(identities.of_user(user.id)) >= MOST:
        raise LinkRefused(_TOO_MANY)
    return _add(user, provider, found, is_told=True)


def _add(user: User, provider: Provider, found: UpstreamIdentity, is_told: bool) -> Identity:
    identity = Identity(
        user_id=user.id, provider=provider.id, issuer=found.issuer, subject=found.subject
    )
    identity.email = (found.email or "")[: email_addresses.LONGEST] or None
    try:
        identities.add(identity)
    except IntegrityError:  # linked at this moment
        db.session.rollback()
        raise LinkRefused(_ELSEWHERE) from None
    audit.event(Event.IDENTITY_LINKED, user=user.id, provider=provider.id)
    if is_told:
        notifications.identity_added(user, provider.name, identity.email or "")
    return identity


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
    chosen = _find_identity(user, identity_id)
    if chosen is None:
        raise LinkRefused(_GONE)
    if is_managed(user, chosen):
        raise LinkRefused(_MANAGED)
    if not has_other_way_in(user, identity=chosen):
        raise LinkRefused(_LAST)
    _remove_identity(actor, user, chosen, keep)


@audit.acting
def remove_identity(actor: Actor, user: User, identity_id: UUID, *, warned: Iterable[str]) -> None:
    """Remove an identity of a user, and end the sessions that it began.

    Also the last way in, if the operator was `warned` (see `consequences`). Raises `LookupError`,
    `NotAllowed` and `Changed`.
    """
    staff.require_admin(actor)
    locked = users.lock_any(user.id)
    chosen = _find_identity(user, identity_id)
    if locked is None or chosen is None:
        raise LookupError(identity_id)
    now = {"warnings": consequences(locked, chosen)}
    differences.require_unchanged({"warnings": list(warned)}, now)
    _remove_identity(actor, locked, chosen)


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


def _find_identity(user: User, identity_id: UUID) -> Identity | None:
    return next((one for one in identities.of_user(user.id) if one.id == identity_id), None)


def _remove_identity(actor: Actor, user: User, chosen: Identity, keep: UUID | None = None) -> None:
    begun = [one for one in identities.sessions_of(chosen.id) if one != keep]
    revocation.some_sessions(user.id, begun, "identity_removed")
    identities.remove(user.id, chosen.id)
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
        for one in identities.of_user(user.id)
        if identity is None or one.id != identity.id
    )
    if user.password_hash is not None or any(others):
        return True
    return any(one.id != passkey for one in factors.passkeys_of_user(user.id))


_PURPOSE = "tokens of upstream providers"
_LONGEST = 16 * 1024


def note_session(identity: Identity, found: UpstreamIdentity) -> UpstreamSession:
    """Note a sign-in through an identity; `authentication.begin` gives it a session."""
    session = UpstreamSession(identity_id=identity.id, sid=found.sid, amr=found.amr)
    session.has_two_factors, session.auth_time = found.has_two_factors, found.auth_time
    session.sealed_id_token = encrypted_token(found.id_token)
    session.sealed_refresh_token = encrypted_token(found.refresh_token)
    session.sealed_access_token = encrypted_token(found.access_token)
    identities.add_session(session)
    return session


def encrypted_token(token: str | None) -> str | None:
    """A provider's token, encrypted; `None` if it is too long to keep."""
    if not token or len(token) > _LONGEST:
        return None
    return secrets.encrypt(context.settings().secret_keys, _PURPOSE, token.encode())


def decrypted_token(sealed: str | None) -> str | None:
    """A provider's token, unless the secret key that encrypted it is gone."""
    keys = context.settings().secret_keys
    try:
        return secrets.decrypt(keys, _PURPOSE, sealed).decode() if sealed else None
    except secrets.InvalidToken:
        return None


@audit.acting
def end_sessions(actor: Actor, issuer: str, subject: str | None, sid: str | None) -> int:
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
def confirm_session(
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
        identities.replace_refresh_token(session.id, encrypted_token(found.refresh_token))
    if user and user.disabled_at is None:
        take_over_profile(actor, provider, user, found)


def directory_of(user: User) -> Provider | None:
    """The directory whose password a user signs in with, for want of one here."""
    if user.password_hash is not None:
        return None
    managed = (one for one in identities.of_user(user.id) if is_managed(user, one))
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
    identity = identities.find(found.issuer, found.subject)
    if identity is None or identity.barred_at is None:
        return
    user = users.lock_any(identity.user_id)
    if user is None or user.disabled_at != identity.barred_at:
        return
    user.disabled_at = identity.barred_at = None
    db.session.flush()
    audit.event(Event.USER_ENABLED, by=provider.id, user=user.id)


@audit.acting
def confirm_directory_account(
    actor: Actor, provider: Provider, identity: Identity, found: UpstreamIdentity
) -> None:
    """Take over what the directory says of somebody who may still sign in."""
    if user := users.lock(identity.user_id):
        take_over_profile(actor, provider, user, found)
