"""Upstream identities: find their users, link and remove them, and end their sessions.

An identity is recognized by issuer and subject alone. An email address links it only if the
operator trusts the provider for it; otherwise the person signs in here once.

At each sign-in, profile and groups are updated as the provider's settings say. A user of a
directory has no password here and is disabled when the directory disables them. The directory is
asked about them regularly, because it sends no notifications.
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
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow.attributes import from_provider
from sso.i18n import N_
from sso.mfa import policy
from sso.models import Identity, UpstreamSession, User
from sso.models.users import has_ended
from sso.services import (
    accounts,
    api_tokens,
    attributes,
    checks,
    notifications,
    revocation,
    roles,
)
from sso.services import changes as differences
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import factors, identities, users
from sso.store.account_page import LinkedIdentity
from sso.upstream.identity import UpstreamIdentity

logger = logging.getLogger("sso.services")


@audit.acting
def take_over_profile(
    actor: Actor, provider: Provider, user: User, upstream_identity: UpstreamIdentity
) -> None:
    """Update the mapped groups and attributes, and name and email of an account that a directory
    manages.

    Groups without a mapping stay. The email is updated only if it is free and the provider is
    trusted for it. Raises `Invalid` if another account takes it at this moment.
    """
    changes = _profile(provider, user, upstream_identity)
    added, removed = _memberships(provider, user, upstream_identity)
    if added or removed:
        changes["memberships"] = ListEdit(added, removed)
    if upstream_identity.attributes is not None:
        stated = upstream_identity.attributes
        if edits := attributes.edits_of_provider(user, provider.id, stated):
            changes |= {"attributes": edits, "origin": from_provider(provider.id)}
    if not changes:
        return
    actor = replace(actor, by=provider.id)
    try:
        accounts.update(actor, user.id, **changes)
    except NotAllowed as error:
        logger.warning("user %s stays in the group that administers: %s", user.id, error)
        removable = tuple(group for group in removed if group != context.settings().admin_group)
        accounts.update(actor, user.id, **{**changes, "memberships": ListEdit(added, removable)})


def _memberships(
    provider: Provider, user: User, upstream_identity: UpstreamIdentity
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the groups to add the user to, and those to remove them from."""
    if upstream_identity.groups is None or not provider.groups:
        return (), ()
    members = {
        group
        for upstream_group, group in provider.groups.items()
        if upstream_group in upstream_identity.groups
    }
    had = set(user.groups)
    removed = (set(provider.groups.values()) - members) & had
    # An end that an operator has set holds until an operator adds the user again.
    added = sorted(members - had - user.ended_groups)
    room = max(0, checks.MAX_GROUPS - len(had - removed))
    if added[room:]:
        logger.warning("user %s is in too many groups to come into another", user.id)
    return tuple(added[:room]), tuple(sorted(removed))


def _profile(provider: Provider, user: User, upstream_identity: UpstreamIdentity) -> dict[str, Any]:
    """Return the changes of a managed account's profile. Accounts provisioned by SCIM are left."""
    is_provisioned = user.user_name is not None or user.external_id is not None
    if provider.REDIRECTS or user.password_hash is not None or is_provisioned:
        return {}
    changes: dict[str, Any] = {}
    if (name := name_of(upstream_identity)) and name != user.name:
        changes["name"] = name
    email = email_of(upstream_identity)
    if (
        email
        and email != user.email
        and upstream_identity.email_verified
        and provider.vouches_for(email)
    ):
        if users.find_by_email(email) is None:
            changes |= {"email": email, "email_verified": True}
        else:
            logger.info("user %s keeps the email: another has that of the directory", user.id)
    return changes


def name_of(upstream_identity: UpstreamIdentity) -> str:
    """Return the identity's name, or "" if it is not valid here."""
    name = " ".join(upstream_identity.name.split())
    return "" if checks.text_error(checks.NAME, name) else name


def email_of(upstream_identity: UpstreamIdentity) -> str | None:
    """Return the identity's email address, or `None` if it is not valid here."""
    try:
        return (
            email_addresses.normalized(upstream_identity.email) if upstream_identity.email else None
        )
    except ValueError:
        return None


MOST = 20  # of one user
_ELSEWHERE = N_("This account is already connected to another account here.")
_TOO_MANY = N_("You have reached the maximum number of connected accounts. Remove one first.")
_DISABLED = N_("Your account here is disabled. Ask your administrator.")


class LinkRefused(ValueError):
    """The identity cannot be linked or removed; `str()` tells the user why. Roll back then."""


class SignIn(NamedTuple):
    """The identity signs in its user, who is locked."""

    user: User
    identity: Identity


class ProveAccount(NamedTuple):
    """The identity belongs to no account: the person has to sign in here once to link it.

    If the provider allows it, they can instead create an account with a verified email address.
    """


class Refused(NamedTuple):
    """The sign-in is refused; `text` tells the person why."""

    text: str


Resolution = SignIn | ProveAccount | Refused


@audit.acting
def resolve(actor: Actor, provider: Provider, upstream_identity: UpstreamIdentity) -> Resolution:
    """Find the user of an identity; link it or create an account if the operator allows it.

    On `Refused`, only the event is written.
    """
    attributes.hold(bool(upstream_identity.attributes))
    identity = identities.find(upstream_identity.issuer, upstream_identity.subject)
    user = users.lock(identity.user_id) if identity else None
    if identity is None:
        email = email_of(upstream_identity)
        if not (email and upstream_identity.email_verified and provider.vouches_for(email)):
            return ProveAccount()
        existing = users.find_by_email(email)
        if existing is None and provider.sign_up:
            user = _new_user(actor, email, upstream_identity)
        elif existing and not existing.is_disabled:
            user = _owner(existing, email, upstream_identity.issuer)
        if user:
            identity = _add(user, provider, upstream_identity, is_notified=existing is not None)
        elif existing is None or not existing.is_disabled:
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
        take_over_profile(actor, provider, user, upstream_identity)
    except Invalid:
        raise LinkRefused(_ELSEWHERE) from None
    return SignIn(user, identity)


def _owner(account: User, email: str, issuer: str) -> User | None:
    """Lock and return the account with this email, if a trusted address proves its owner.

    An account that already has an identity of this issuer is not taken: the issuer has given the
    address to another person.

    An account whose address was never confirmed here may be a stranger's (pre-hijacking): it is
    taken only if nobody has been able to sign in to it.
    """
    user = users.lock(account.id)
    if user is None or user.email != email or not policy.email_settled(user):
        return None
    linked = identities.of_user(user.id)
    if any(identity.issuer == issuer for identity in linked):
        return None
    if user.email_verified:
        return user
    if user.password_hash or factors.of_user(user.id) or linked:
        return None
    user.email_verified = True
    return user


def _new_user(actor: Actor, email: str, upstream_identity: UpstreamIdentity) -> User | None:
    name = name_of(upstream_identity) or email.partition("@")[0]
    try:
        return accounts.sign_up(actor, email=email, name=name, password_hash=None)
    except Invalid:  # created at this moment
        return None


@audit.acting
def link(
    actor: Actor, user: User, provider: Provider, upstream_identity: UpstreamIdentity
) -> Identity:
    """Link an identity to a user, who has proven both. The caller has locked the user.

    Raises `LinkRefused`.
    """
    identity = identities.find(upstream_identity.issuer, upstream_identity.subject)
    if identity and identity.user_id == user.id:
        return identity
    if identity:
        raise LinkRefused(_ELSEWHERE)
    if len(identities.of_user(user.id)) >= MOST:
        raise LinkRefused(_TOO_MANY)
    return _add(user, provider, upstream_identity, is_notified=True)


def _add(
    user: User, provider: Provider, upstream_identity: UpstreamIdentity, is_notified: bool
) -> Identity:
    identity = Identity(
        user_id=user.id,
        provider=provider.id,
        issuer=upstream_identity.issuer,
        subject=upstream_identity.subject,
    )
    identity.email = (upstream_identity.email or "")[: email_addresses.LONGEST] or None
    try:
        identities.add(identity)
    except IntegrityError:  # linked at this moment
        db.session.rollback()
        raise LinkRefused(_ELSEWHERE) from None
    audit.event(Event.IDENTITY_LINKED, user=user.id, provider=provider.id)
    if is_notified:
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
    """Remove the user's own identity, and end the sessions that it began, except `keep`.

    The caller has locked the user. Raises `LinkRefused` if it is the last way to sign in, or
    managed.
    """
    identity = _find_identity(user, identity_id)
    if identity is None:
        raise LinkRefused(_GONE)
    if is_managed(user, identity):
        raise LinkRefused(_MANAGED)
    if not has_other_way_in(user, identity=identity):
        raise LinkRefused(_LAST)
    _remove_identity(actor, user, identity, keep)


@audit.acting
def remove_identity(actor: Actor, user: User, identity_id: UUID, *, warned: Iterable[str]) -> None:
    """Remove an identity of a user, as an operator, and end the sessions that it began.

    `warned`: the warnings that were shown (see `consequences`). The last way to sign in is removed,
    too. Raises `LookupError`, `NotAllowed` and `Changed`.
    """
    locked = users.lock_any(user.id)
    identity = _find_identity(user, identity_id)
    if locked is None or identity is None:
        raise LookupError(identity_id)
    roles.require_may_help(actor, locked)
    now = {"warnings": consequences(locked, identity)}
    differences.require_unchanged({"warnings": list(warned)}, now)
    _remove_identity(actor, locked, identity)


def consequences(user: User, identity: Identity) -> list[str]:
    """Return warnings for an operator about removing an identity; to be translated."""
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
    return next(
        (identity for identity in identities.of_user(user.id) if identity.id == identity_id), None
    )


def _remove_identity(
    actor: Actor, user: User, identity: Identity, keep: UUID | None = None
) -> None:
    session_ids = [
        session_id for session_id in identities.sessions_of(identity.id) if session_id != keep
    ]
    revocation.some_sessions(user.id, session_ids, "identity_removed")
    identities.remove(user.id, identity.id)
    audit.event(Event.IDENTITY_UNLINKED, by=actor.by, user=user.id, provider=identity.provider)
    provider = context.upstreams().find(identity.provider)
    notifications.identity_removed(
        user, provider.name if provider else identity.provider, identity.email or ""
    )


def is_managed(user: User, identity: Identity | LinkedIdentity) -> bool:
    """Return whether a directory manages the account and disables it when the person leaves."""
    provider = context.upstreams().find(identity.provider)
    return user.password_hash is None and provider is not None and not provider.REDIRECTS


def has_other_way_in(
    user: User, *, identity: Identity | None = None, passkey: UUID | None = None
) -> bool:
    """Return whether a user can sign in without this identity, or without this passkey.

    Identities whose provider is no longer configured do not count.
    """
    providers = {provider.id for provider in context.upstreams()}
    other_identities = (
        other
        for other in identities.of_user(user.id)
        if identity is None or other.id != identity.id
    )
    if user.password_hash is not None or any(
        other.provider in providers for other in other_identities
    ):
        return True
    return any(other.id != passkey for other in factors.passkeys_of_user(user.id))


_PURPOSE = "tokens of upstream providers"
_LONGEST = 16 * 1024


def note_session(identity: Identity, upstream_identity: UpstreamIdentity) -> UpstreamSession:
    """Store a sign-in through an identity; `authentication.begin` gives it a session."""
    session = UpstreamSession(
        identity_id=identity.id, sid=upstream_identity.sid, amr=upstream_identity.amr
    )
    session.has_two_factors, session.auth_time = (
        upstream_identity.has_two_factors,
        upstream_identity.auth_time,
    )
    session.sealed_id_token = encrypted_token(upstream_identity.id_token)
    session.sealed_refresh_token = encrypted_token(upstream_identity.refresh_token)
    session.sealed_access_token = encrypted_token(upstream_identity.access_token)
    identities.add_session(session)
    return session


def encrypted_token(token: str | None) -> str | None:
    """Encrypt a provider's token; return `None` if it is too long to store."""
    if not token or len(token) > _LONGEST:
        return None
    return secrets.encrypt(context.settings().secret_keys, _PURPOSE, token.encode())


def decrypted_token(encrypted: str | None) -> str | None:
    """Decrypt a provider's token; return `None` if its secret key is gone."""
    keys = context.settings().secret_keys
    try:
        return secrets.decrypt(keys, _PURPOSE, encrypted).decode() if encrypted else None
    except secrets.InvalidToken:
        return None


@audit.acting
def end_sessions(actor: Actor, issuer: str, subject: str | None, sid: str | None) -> int:
    """End the sessions that a provider has ended; return their number.

    `sid`: only the sessions with this `sid` at the provider and, if there is a subject, those
    without one. Sign-ins that wait for their second factor are treated like sessions.
    """
    ended = 0
    unnamed = subject is not None
    for identity in identities.meant_by(issuer, subject, sid):
        users.lock_any(identity.user_id)  # before its sessions, as everywhere
        session_ids = identities.sessions_of(identity.id, sid, unnamed)
        ended += revocation.some_sessions(identity.user_id, session_ids, "upstream_logout")
        identities.forget_waiting(identity.id, sid, unnamed)
    return ended


@audit.acting
def confirm_session(
    actor: Actor,
    provider: Provider,
    session: UpstreamSession,
    identity: Identity,
    upstream_identity: UpstreamIdentity | None,
) -> None:
    """Update token and profile after a recheck; end the session if the answer is `None`."""
    user = users.lock_any(identity.user_id)
    if upstream_identity is None:
        session_ids = [session.session_id] if session.session_id else []
        revocation.some_sessions(identity.user_id, session_ids, "upstream_recheck")
        return
    if upstream_identity.refresh_token:
        token = encrypted_token(upstream_identity.refresh_token)
        identities.replace_refresh_token(session.id, token)
    if user and not user.is_disabled:
        take_over_profile(actor, provider, user, upstream_identity)


def directory_of(
    user: User, linked: Iterable[Identity | LinkedIdentity] | None = None
) -> Provider | None:
    """Return the directory that checks the user's password, if the user has none here.

    `linked`: the user's identities, if they were read before.
    """
    if user.password_hash is not None:
        return None
    if linked is None:
        linked = identities.of_user(user.id)
    managed = (identity for identity in linked if is_managed(user, identity))
    return next((context.upstreams().find(identity.provider) for identity in managed), None)


@audit.acting
def disable_user(actor: Actor, provider: Provider, identity: Identity, reason: str) -> None:
    """Disable the user of an identity that the directory has disabled; end all access.

    The last administrator is not disabled: only sessions and grants end.
    """
    user = users.lock(identity.user_id)
    if user is None:
        return
    try:
        roles.keep_administrators(replace(actor, by=provider.id), [user])
    except NotAllowed as error:
        logger.warning("directory %s: user %s is not disabled: %s", provider.id, user.id, error)
        revocation.everything_of_user(user.id, "barred")
        return
    users.set_disabled(user, True, directory=identity)
    db.session.flush()
    revocation.everything_of_user(user.id, "user_disabled")
    api_tokens.end_of(actor, [user.id], "owner_disabled")
    audit.event(Event.USER_DISABLED, by=provider.id, user=user.id, reason=reason)


@audit.acting
def enable_user(actor: Actor, provider: Provider, upstream_identity: UpstreamIdentity) -> None:
    """Enable a user again whom `disable_user` disabled, after a sign-in at the directory."""
    identity = identities.find(upstream_identity.issuer, upstream_identity.subject)
    if identity is None or identity.barred_at is None:
        return
    user = users.lock_any(identity.user_id)
    if user is None or user.disabled_at != identity.barred_at or has_ended(user.ends_at):
        return
    users.set_disabled(user, False, directory=identity)
    db.session.flush()
    audit.event(Event.USER_ENABLED, by=provider.id, user=user.id)


@audit.acting
def confirm_directory_account(
    actor: Actor, provider: Provider, identity: Identity, upstream_identity: UpstreamIdentity
) -> None:
    """Update the profile of a user who may still sign in at the directory."""
    attributes.hold(bool(upstream_identity.attributes))
    if user := users.lock(identity.user_id):
        take_over_profile(actor, provider, user, upstream_identity)
