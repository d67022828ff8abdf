"""What is taken over of a person, each time that a provider says who somebody is."""

import logging
from dataclasses import replace
from typing import Any

from sso import audit, context
from sso.audit import Actor
from sso.config import email_addresses
from sso.config.upstream.provider import Provider
from sso.models import User
from sso.services import accounts, checks
from sso.services.changes import ListEdit
from sso.services.staff import NotAllowed
from sso.store import users
from sso.upstream.identity import UpstreamIdentity

logger = logging.getLogger("sso.services")


@audit.acting
def take_over(actor: Actor, provider: Provider, user: User, found: UpstreamIdentity) -> None:
    """Take over the mapped groups, and of an account that lives by a directory name and email.

    Groups that stand in no mapping are left alone. The email has to be free, and one that the
    provider is trusted for. Raises `RegistrationError` if somebody takes it at this moment.
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
