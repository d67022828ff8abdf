"""Accounts: created, changed, disabled, deleted. For passwords and the like see `credentials`.

For accounts that a file declares see `declared_accounts`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.exc import IntegrityError

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import email_addresses, urls
from sso.crypto import passwords
from sso.extensions import db
from sso.flow import group_ends as member_ends
from sso.flow import moments
from sso.flow.attributes import OPERATOR, Party
from sso.i18n.message import Message
from sso.models import User
from sso.models.users import has_ended
from sso.services import (
    api_tokens,
    checks,
    ends,
    importing,
    notifications,
    revocation,
    roles,
    subjects,
)
from sso.services import attributes as attribute_values
from sso.services import changes as differences
from sso.services.changes import ListEdit, Outcome
from sso.services.checks import Invalid
from sso.store import clients, identities, named_groups, pictures, sessions, users
from sso.store.users import DeclaredFields

# What a provisioning client keeps of a user (`provisioned`); nothing here depends on it.
PROVISIONED = ("user_name", "external_id", "scim_attributes")
OwnerOf = Callable[[str], UUID | None]  # the ID of the user with an email address


def described(user: User | DeclaredFields) -> dict[str, Any]:
    """A user's fields, as commands export them and the audit trail compares them."""
    return {
        "id": str(user.id),
        "email": user.email,
        "name": user.name,
        "email_verified": user.email_verified,
        "groups": user.groups,
        "disabled": user.is_disabled,
        "claims": user.claims,
        "attributes": user.attributes,
        "ends_at": moments.text_of(user.ends_at),
        "group_ends": dict(user.group_ends or {}),
    }


@audit.acting
def create(
    actor: Actor,
    *,
    email: str,
    name: str,
    password: str | None = None,
    password_hash: str | None = None,
    email_verified: bool = False,
    disabled: bool = False,
    groups: Iterable[str] = (),
    claims: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
    ends_at: str | None = None,
    group_ends: Mapping[str, str] | None = None,
    user_id: UUID | None = None,
    is_invited: bool = False,
    provisioned: Mapping[str, Any] | None = None,
) -> User:
    """A new user, who is mailed a link to verify the address, or to set the first password.

    Nobody can sign in yet without a password, or the `password_hash` of another system.
    """
    roles.require_may_create(actor, groups := list(groups))
    roles.require_may_change(actor, [groups])
    user = _new(user_id, email_verified=email_verified)
    if password_hash:
        user.password_hash = importing.accept_hash(password_hash)
    users.set_disabled(user, disabled, within_limits=roles.is_limited(actor))
    _provision(user, provisioned)
    attribute_values.hold(attributes)
    subjects.lock(attributes)
    _add(
        user,
        password,
        email=email,
        name=name,
        groups=groups,
        claims=claims,
        attributes=attributes,
        ends_at=ends_at,
        group_ends=group_ends,
        party=attribute_values.party_of(actor, groups),
    )
    if is_invited:
        notifications.invited(user)
    elif not email_verified:
        notifications.verify(user)
    what = "invitation" if is_invited else None
    audit.event(Event.USER_CREATED, by=actor.by, user=user.id, what=what)
    return user


@audit.acting
def invite(actor: Actor, *, email: str, name: str, groups: Iterable[str] = ()) -> tuple[User, bool]:
    """A new user, and whether an invitation is mailed. The helpdesk adds no groups."""
    roles.require_may_create(actor, groups := list(groups))
    roles.require_may_change(actor, [groups])
    user = _new(None, email_verified=False)
    _add(user, None, email=email, name=name, groups=groups)
    is_sent = notifications.invited(user)
    audit.event(Event.USER_INVITED, user=user.id)
    return user, is_sent


@audit.acting
def sign_up(actor: Actor, *, email: str, name: str, password_hash: str | None) -> User:
    """A new account for a proven address. Raises `Invalid` if it is taken."""
    user = User(email=email, email_verified=True, name=name, password_hash=password_hash)
    _flush(user)
    audit.event(Event.SIGNED_UP, user=user.id)
    return user


@audit.acting
def update(
    actor: Actor,
    user_id: UUID,
    *,
    email_verified: bool | None = None,
    disabled: bool | None = None,
    email: str | None = None,
    name: str | None = None,
    memberships: ListEdit | None = None,
    claims: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
    ends_at: str | None = None,
    group_ends: Mapping[str, str] | None = None,
    provisioned: Mapping[str, Any] | None = None,
    seen: Mapping[str, Any] | None = None,
    origin: str | None = None,
) -> tuple[User, Outcome]:
    """Change what is given, by an operator; what it takes away ends at once.

    A claim or an attribute of `None` is removed, and so is an end of "". `group_ends`: of
    memberships, by group. `email_verified`: of another address, too. `seen`: fields of `described`
    as seen before. `origin`: of the attributes, by default the actor. Raises
    `LookupError`, `Invalid`, `NotAllowed` and `Changed`.
    """
    attribute_values.hold(attributes)
    subjects.lock(attributes)
    user = users.lock_any(user_id)
    if user is None:
        raise LookupError(user_id)
    settle(actor, user)
    roles.require_reach(actor, user)
    before, had_only_ended = _whole(user), user.is_only_ended
    differences.require_unchanged(seen, before)
    members = memberships.applied_to(user.groups) if memberships else None
    after = user.groups if members is None else members
    roles.require_may_place(actor, user.groups, after, group_ends or ())
    roles.require_may_change(actor, [user.groups, members or ()])
    gets_end = (ends_at or "").strip() or (
        (group_ends or {}).get(context.settings().admin_group, "").strip()
    )
    is_demoted = members is not None and roles.role_of(members) != roles.ADMIN
    if disabled or gets_end or is_demoted:
        roles.keep_administrators(actor, [user])
    edit(
        user,
        email=email,
        name=name,
        groups=members,
        claims=claims,
        attributes=attributes,
        ends_at=ends_at,
        group_ends=group_ends,
        party=attribute_values.party_of(actor, user.groups),
        origin=origin,
    )
    _provision(user, provisioned)  # after the queries above, which would write the user name
    _flush(user)
    if user.email != before["email"]:
        roles.require_may_free_email(actor, user)
    if disabled is False:
        roles.require_may_enable(actor, user)
    switch(user, before, email_verified, disabled, within_limits=roles.is_limited(actor))
    if disabled:
        identities.forget_bars(user.id)
    changes = differences.between(before, _whole(user))
    is_end_held = had_only_ended and user.is_disabled and not user.is_only_ended
    take_effect(actor, [(user, changes)], disabled_after_end=[user] if is_end_held else [])
    db.session.flush()
    notes = memberships.without_effect(before["groups"]) if memberships else []
    return user, Outcome(changes, [f"groups: {note}" for note in notes])


@audit.acting
def choose_language(actor: Actor, user: User, tag: str | None) -> None:
    """Set the language of the account, by the user; None removes it.

    The caller has locked the user, because all claims are one value.
    """
    others = {name: value for name, value in user.claims.items() if name != "locale"}
    claims = {**others, "locale": tag} if tag else others
    if changes := differences.between(user.claims, claims):
        user.claims = claims
        db.session.flush()
        audit.own_event(Event.LANGUAGE_CHANGED, user.id, changes=changes)


@audit.acting
def disable(actor: Actor, user: User) -> None:
    """Lock a user out at once: all sessions and grants end. Raises `NotAllowed`."""
    _lock(actor, user, keeps_access=False)
    users.set_disabled(user, True, within_limits=roles.is_limited(actor))
    revocation.everything_of_user(user.id, "user_disabled")
    api_tokens.end_of(actor, [user.id], "owner_disabled")
    audit.event(Event.USER_DISABLED, user=user.id)


@audit.acting
def enable(actor: Actor, user: User) -> None:
    """Let a user sign in again; what was ended stays ended. Raises `NotAllowed`."""
    _lock(actor, user)
    roles.require_may_enable(actor, user)
    if user.disabled_at is None:  # the account has ended, and the worker has not seen to it
        revocation.everything_of_user(user.id, "user_disabled")
    users.set_disabled(user, False)
    audit.event(Event.USER_ENABLED, user=user.id)


@audit.acting
def delete(actor: Actor, user: User, *, is_own: bool = False) -> None:
    """Delete a user with sessions, grants, tokens and consents; `is_own` is confirmed by mail.

    Raises `NotAllowed`.
    """
    _lock(actor, user, keeps_access=False)
    roles.require_may_free_email(actor, user)
    revocation.everything_of_user(user.id, "user_deleted")
    api_tokens.end_of(actor, [user.id], "owner_deleted")
    users.remove(user)
    named_groups.touch(user.groups)
    if is_own:
        notifications.account_deleted(user)
    gone, what = {"email": user.email, "name": user.name}, "own account" if is_own else None
    audit.event(Event.USER_DELETED, gone, by=actor.by, user=user.id, what=what)


@audit.acting
def take_effect(
    actor: Actor,
    changed: Iterable[tuple[User, differences.Differences]],
    joined: Iterable[str] = (),
    disabled_after_end: Iterable[User] = (),
) -> None:
    """End the access that changes take away, tell the users, and record the changes.

    `joined`: groups of new users. `disabled_after_end`: users whose accounts had ended, and whom
    somebody disables now. That is no change of `disabled`.
    """
    changed = [(user, changes) for user, changes in changed if changes]
    edits = {user.id: changes["groups"] for user, changes in changed if "groups" in changes}
    for user, changes in changed:
        if urls.picture_name(changes.get("claims", {}).get("before", {}).get("picture")):
            pictures.remove_former(user.id, user.claims.get("picture"))
        if "email" in changes:
            sessions.forbid_enrolment(user.id)
            notifications.email_changed(user, changes["email"]["before"])
            if not user.email_verified:
                notifications.verify(user)
    edited = {name for edit in edits.values() for name in edit["added"] + edit["removed"]}
    named_groups.touch(edited.union(joined))
    losing = [user for user, _ in changed if user.id in edits and edits[user.id]["removed"]]
    revocation.end_lost_access(losing, clients.every() if losing else ())
    for user in disabled_after_end:
        # The worker, which may not have seen to the end yet, does so no more.
        revocation.everything_of_user(user.id, "user_disabled")
        api_tokens.end_of(actor, [user.id], "owner_disabled")
        audit.event(Event.USER_DISABLED, by=actor.by, user=user.id)
    for user, changes in changed:
        # Also if the user is enabled: the worker may not have seen to an end yet.
        if "disabled" in changes:
            revocation.everything_of_user(user.id, "user_disabled")
            api_tokens.end_of(actor, [user.id], "owner_disabled")
        elif user.id in edits and _loses_administration(
            edits[user.id]["before"], edits[user.id]["after"]
        ):
            api_tokens.end_of(actor, [user.id], "owner_lost_role")
        what, fields = " ".join(changes), {}
        if "attributes" in changes:
            fields["attributes"] = attribute_values.names_of(changes)
        rest = {name: change for name, change in changes.items() if name not in fields}
        audit.event(
            Event.USER_CHANGED, by=actor.by, user=user.id, what=what, **fields, changes=rest or None
        )


@audit.acting
def announce_ends(actor: Actor) -> int:
    """Tell people whose accounts end soon, once; return their number, of a batch."""
    now, count = clock.now(), 0
    for user in users.ending(now, now + moments.NOTICE):
        if users.note_announced(user):
            notifications.account_ends(user)
            count += 1
    return count


@audit.acting
def settle(actor: Actor, user: User) -> bool:
    """Remove a user, who is locked, from the groups whose membership has ended, and end the access
    that they gave; return whether there are any.

    Before a change: whom an operator adds again is a new member.
    """
    groups = list(user.groups)
    if groups == user.stored_groups:
        return False
    changes = {"groups": differences.of_field("groups", list(user.stored_groups), groups)}
    user.groups = groups
    db.session.flush()
    take_effect(actor, [(user, changes)])
    return True


@audit.acting
def end_memberships_due(actor: Actor) -> int:
    """Tell people of memberships that end soon, once, and remove those from groups whose membership
    has ended; return the number of people, of a batch.
    """
    now, count = clock.now(), 0
    for user_id in users.with_groups_due(now):
        user = users.lock_any(user_id)
        if user is None or user.groups_due_at is None or user.groups_due_at > now:
            continue  # changed at this moment
        settle(actor, user)
        db.session.flush()
        near = member_ends.near(user.group_ends or {}, user.group_ends_told or {}, now)
        users.note_told(user, near)
        for end in sorted(set(near.values())):
            notifications.memberships_end(
                user, sorted(name for name in near if near[name] == end), moments.parsed(end)
            )
        count += 1
    return count


@audit.acting
def end_due(actor: Actor) -> int:
    """Disable users whose accounts have ended, and end their access; return their number, of a
    batch. The last administrator has no end (`roles.keep_administrators`).
    """
    count = 0
    for user_id in users.ended(clock.now()):
        user = users.lock_any(user_id)
        if user is None or user.disabled_at is not None or not has_ended(user.ends_at):
            continue  # changed at this moment
        users.set_disabled(user, True, at=user.ends_at)
        db.session.flush()
        revocation.everything_of_user(user.id, "user_disabled")
        api_tokens.end_of(actor, [user.id], "owner_disabled")
        audit.event(Event.USER_DISABLED, by=actor.by, user=user.id, reason="account_ended")
        count += 1
    return count


def _loses_administration(before: Collection[str], after: Collection[str]) -> bool:
    return roles.role_of(before) == roles.ADMIN != roles.role_of(after)


def _new(user_id: UUID | None, *, email_verified: bool) -> User:
    return User(
        id=user_id or uuid4(), email_verified=email_verified, claims={}, attributes={}, groups=[]
    )


def _lock(actor: Actor, user: User, *, keeps_access: bool = True) -> None:
    if users.lock_any(user.id) is None:
        raise LookupError(user.id)  # deleted at this moment
    roles.require_reach(actor, user)
    roles.require_may_change(actor, [user.groups])
    if not keeps_access:
        roles.keep_administrators(actor, [user])


def fill(user: User, password: str | None, *, email: str, name: str, **more: Any) -> None:
    """Give a new user these fields. Raises `Invalid`, also for a weak password."""
    weakness = password is not None and passwords.weakness(password, (name, email))
    errors = [weakness] if weakness else []
    try:
        edit(user, email=email, name=name, **more)
    except Invalid as error:
        errors = [*error.errors, *errors]
    if errors:
        raise Invalid(errors)


def _add(user: User, password: str | None, *, email: str, name: str, **more: Any) -> None:
    fill(user, password, email=email, name=name, **more)
    user.password_hash = passwords.hash_password(password) if password else user.password_hash
    _flush(user)
    named_groups.touch(user.groups)


def owner_of(email: str) -> UUID | None:
    """Return the ID of the user with an email address."""
    user = users.find_by_email(email)
    return user.id if user else None


def switch(
    user: User,
    before: Mapping[str, Any],
    email_verified: bool | None,
    disabled: bool | None,
    *,
    within_limits: bool = False,
) -> None:
    """Set the fields that depend on the email address, and those that are on or off.

    A user whose account has only ended is disabled as one who is enabled: a later end does not
    let the user in.
    """
    if user.email != before["email"]:
        user.email_changed_at = None  # an operator vouches for it
        user.email_verified = False
    if email_verified is not None:
        user.email_verified = email_verified
    if disabled is not None and (disabled != user.is_disabled or (disabled and user.is_only_ended)):
        users.set_disabled(user, disabled, within_limits=within_limits)
    elif disabled and not within_limits:
        user.disabled_within_limits = False  # only somebody without limits may enable the user now


def edit(
    user: User,
    *,
    email: str | None = None,
    name: str | None = None,
    groups: Iterable[str] | None = None,
    claims: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
    party: Party | None = None,
    origin: str | None = None,
    ends_at: str | None = None,
    group_ends: Mapping[str, str] | None = None,
    may_have_ended: bool = False,
    owner_of: OwnerOf = owner_of,
    checks_subjects: bool = True,
) -> None:
    """Change only the object; raise `Invalid` with every error.

    `party`: who changes the attributes; the operator at the command line by default. `origin`:
    where they come from, if not from the party (`flow.attributes.ORIGINS`).
    `may_have_ended`: the end may be in the past. `checks_subjects`: read all users for values by
    which applications know people, if they change.
    """
    errors: list[str] = []
    address = user.email
    if email is not None:
        try:
            address = email_addresses.normalized(email)
        except ValueError as error:
            errors.append(email_addresses.refused(email, error))
        else:
            if address != user.email and owner_of(address) not in (None, user.id):
                errors.append(checks.taken(address))
    if name is not None and (unfit := checks.text_error(checks.NAME, name)):
        errors.append(unfit)
    members = list(dict.fromkeys(groups)) if groups is not None else user.groups
    # As with groups, those that the user has already may stay.
    edited = {key: value for key, value in (claims or {}).items() if user.claims.get(key) != value}
    errors += checks.group_errors(members, user.groups) + checks.claim_errors(edited)
    values = attribute_values.merged(user.attributes, attributes or {})
    errors += attribute_values.value_errors(user.attributes, values, party)
    if party is None and checks_subjects:
        errors += subjects.value_errors(user.id, user.attributes, values)
    end = user.ends_at
    if ends_at is not None:
        try:
            end = ends.read(ends_at, end, may_be_past=may_have_ended)
        except Invalid as error:
            errors += error.errors
    ends_after, end_errors = _ends_after(user.group_ends or {}, members, group_ends or {})
    errors += end_errors
    if errors:
        raise Invalid(errors)
    if end != user.ends_at:
        users.set_end(user, end)
    user.email, user.groups = address, members
    if ends_after != (user.group_ends or {}):
        user.set_group_ends(ends_after)
    user.name = user.name if name is None else name
    user.set_attributes(values, origin or party or OPERATOR)
    merged = {**user.claims, **(claims or {})}
    user.claims = {key: value for key, value in merged.items() if value is not None}


def _ends_after(
    before: Mapping[str, str], groups: Collection[str], edits: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the ends of memberships of these groups after edits, and the errors of the edits."""
    after = {name: end for name, end in before.items() if name in groups}
    errors: list[str] = []
    for name, text in edits.items():
        if name not in groups and text.strip():
            errors.append(Message("%(group)s is no group of this person", group=name[:200]))
            continue
        try:
            end = moments.text_of(ends.read(text))
        except Invalid as error:
            errors += error.errors
        else:
            after = {key: value for key, value in after.items() if key != name}
            after |= {name: end} if end else {}
    return after, errors


def _whole(user: User) -> dict[str, Any]:
    return {**described(user), **{name: getattr(user, name) for name in PROVISIONED}}


def _provision(user: User, provisioned: Mapping[str, Any] | None) -> None:
    for name in PROVISIONED if provisioned is not None else ():
        setattr(user, name, (provisioned or {}).get(name))


def _flush(user: User) -> None:
    email = user.email
    try:
        users.add(user)
    except IntegrityError:  # another process was quicker
        db.session.rollback()
        raise Invalid([checks.taken(email)]) from None
