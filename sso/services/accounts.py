"""Accounts: created, changed, disabled, deleted. For passwords and the like see `credentials`.

Many accounts that a file declares are compared first, without a lock (`plan`), and written together
(`carry_out`), so that nobody waits long for the database.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.exc import IntegrityError

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import email_addresses
from sso.crypto import passwords
from sso.errors import OperatorError
from sso.extensions import db
from sso.models import User
from sso.services import api_tokens, checks, importing, notifications, revocation, roles
from sso.services import changes as differences
from sso.services.changes import ListEdit, Outcome
from sso.services.checks import Invalid
from sso.services.importing import Methods
from sso.store import clients, identities, named_groups, sessions, users
from sso.store.users import DeclaredFields

# What a provisioning client keeps of a user (`provisioned`); nothing here depends on it.
PROVISIONED = ("user_name", "external_id", "scim_attributes")
_REPORT_EVERY = 500
OwnerOf = Callable[[str], UUID | None]  # the ID of the user with an email address


def described(user: User | DeclaredFields) -> dict[str, Any]:
    """A user's fields, as commands export them and the audit trail compares them."""
    return {
        "id": str(user.id),
        "email": user.email,
        "name": user.name,
        "email_verified": user.email_verified,
        "groups": user.groups,
        "disabled": user.disabled_at is not None,
        "claims": user.claims,
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
    user_id: UUID | None = None,
    is_invited: bool = False,
    provisioned: Mapping[str, Any] | None = None,
) -> User:
    """A new user, who is mailed a link to verify the address, or to set the first password.

    Nobody can sign in yet without a password, or the `password_hash` of another system.
    """
    roles.require_admin(actor)
    roles.require_may_change(actor, [groups := list(groups)])
    user = User(id=user_id or uuid4(), email_verified=email_verified, claims={}, groups=[])
    if password_hash:
        user.password_hash = importing.accept_hash(password_hash)
    user.disabled_at = clock.now() if disabled else None
    _provision(user, provisioned)
    _add(user, password, email=email, name=name, groups=groups, claims=claims)
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
    if groups := list(groups):
        roles.require_admin(actor)
    user = User(id=uuid4(), email_verified=False, claims={}, groups=[])
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
    provisioned: Mapping[str, Any] | None = None,
    seen: Mapping[str, Any] | None = None,
) -> tuple[User, Outcome]:
    """Change what is given, by an operator; what it takes away ends at once.

    A claim of `None` is removed. `email_verified`: of another address, too. `seen`: fields of
    `described` as seen before. Raises `LookupError`, `Invalid`, `NotAllowed`, `Changed`.
    """
    roles.require_admin(actor)
    user = users.lock_any(user_id)
    if user is None:
        raise LookupError(user_id)
    before = _whole(user)
    differences.require_unchanged(seen, before)
    members = memberships.applied_to(user.groups) if memberships else None
    roles.require_may_change(actor, [user.groups, members or ()])
    if disabled or (members is not None and roles.role_of(members) != roles.ADMIN):
        roles.keep_administrators(actor, [user])
    _provision(user, provisioned)
    _edit(user, email=email, name=name, groups=members, claims=claims)
    _flush(user)
    _switch(user, before, email_verified, disabled)
    if disabled:
        identities.forget_bars(user.id)
    changes = differences.between(before, _whole(user))
    _take_effect(actor, [(user, changes)])
    db.session.flush()
    left = memberships.without_effect(before["groups"]) if memberships else []
    return user, Outcome(changes, [f"groups: {one}" for one in left])


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
    user.disabled_at = clock.now()  # not the moment at which a directory did
    revocation.everything_of_user(user.id, "user_disabled")
    api_tokens.end_of(actor, [user.id], "owner_disabled")
    audit.event(Event.USER_DISABLED, user=user.id)


@audit.acting
def enable(actor: Actor, user: User) -> None:
    """Let a user sign in again; what was ended stays ended. Raises `NotAllowed`."""
    _lock(actor, user)
    user.disabled_at = None
    audit.event(Event.USER_ENABLED, user=user.id)


@audit.acting
def delete(actor: Actor, user: User, *, is_own: bool = False) -> None:
    """Delete a user with sessions, grants, tokens and consents; `is_own` is confirmed by mail."""
    _lock(actor, user, keeps_access=False)
    revocation.everything_of_user(user.id, "user_deleted")
    api_tokens.end_of(actor, [user.id], "owner_deleted")
    users.remove(user)
    named_groups.touch(user.groups)
    if is_own:
        notifications.account_deleted(user)
    gone, what = {"email": user.email, "name": user.name}, "own account" if is_own else None
    audit.event(Event.USER_DELETED, gone, by=actor.by, user=user.id, what=what)


def _take_effect(
    actor: Actor,
    changed: Iterable[tuple[User, differences.Differences]],
    joined: Iterable[str] = (),
) -> None:
    """End the access that changes take away, tell the users, and record the changes.

    `joined`: groups of new users.
    """
    changed = [(user, changes) for user, changes in changed if changes]
    edits = {user.id: changes["groups"] for user, changes in changed if "groups" in changes}
    for user, changes in changed:
        if "email" in changes:
            sessions.forbid_enrolment(user.id)
            notifications.email_changed(user, changes["email"]["before"])
            if not user.email_verified:
                notifications.verify(user)
    edited = {name for edit in edits.values() for name in edit["added"] + edit["removed"]}
    named_groups.touch(edited.union(joined))
    losing = [user for user, _ in changed if user.id in edits and edits[user.id]["removed"]]
    revocation.end_lost_access(losing, clients.every() if losing else ())
    for user, changes in changed:
        if "disabled" in changes and user.disabled_at:
            revocation.everything_of_user(user.id, "user_disabled")
            api_tokens.end_of(actor, [user.id], "owner_disabled")
        elif user.id in edits and _loses_administration(
            edits[user.id]["before"], edits[user.id]["after"]
        ):
            api_tokens.end_of(actor, [user.id], "owner_lost_role")
        what = " ".join(changes)
        audit.event(Event.USER_CHANGED, by=actor.by, user=user.id, what=what, changes=changes)


def _loses_administration(before: Collection[str], after: Collection[str]) -> bool:
    return roles.role_of(before) == roles.ADMIN != roles.role_of(after)


def _lock(actor: Actor, user: User, *, keeps_access: bool = True) -> None:
    roles.require_admin(actor)
    if users.lock_any(user.id) is None:
        raise LookupError(user.id)  # deleted at this moment
    roles.require_may_change(actor, [user.groups])
    if not keeps_access:
        roles.keep_administrators(actor, [user])


def _fill(user: User, password: str | None, *, email: str, name: str, **more: Any) -> None:
    """Give a new user these fields. Raises `Invalid`, also for a weak password."""
    weakness = password is not None and passwords.weakness(password, (name, email))
    errors = [weakness] if weakness else []
    try:
        _edit(user, email=email, name=name, **more)
    except Invalid as error:
        errors = [*error.errors, *errors]
    if errors:
        raise Invalid(errors)


def _add(user: User, password: str | None, *, email: str, name: str, **more: Any) -> None:
    _fill(user, password, email=email, name=name, **more)
    user.password_hash = passwords.hash_password(password) if password else user.password_hash
    _flush(user)
    named_groups.touch(user.groups)


def _owner_of(email: str) -> UUID | None:
    user = users.find_by_email(email)
    return user.id if user else None


def _switch(
    user: User, before: Mapping[str, Any], email_verified: bool | None, disabled: bool | None
) -> None:
    """Set the fields that depend on the email address, and those that are on or off."""
    if user.email != before["email"]:
        user.email_changed_at = None  # an operator vouches for it
        user.email_verified = False
    if email_verified is not None:
        user.email_verified = email_verified
    if disabled is not None and disabled != before["disabled"]:
        user.disabled_at = clock.now() if disabled else None


def _edit(
    user: User,
    *,
    email: str | None = None,
    name: str | None = None,
    groups: Iterable[str] | None = None,
    claims: Mapping[str, Any] | None = None,
    owner_of: OwnerOf = _owner_of,
) -> None:
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
    if errors:
        raise Invalid(errors)
    user.email, user.groups = address, members
    user.name = user.name if name is None else name
    merged = {**user.claims, **(claims or {})}
    user.claims = {key: value for key, value in merged.items() if value is not None}


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Declaration:
    """A user in a file; `None` leaves a field unchanged.

    `password` and `password_hash` are only read for a new user.
    """

    email: str
    user_id: UUID | None = None
    name: str | None = None
    email_verified: bool | None = None
    disabled: bool | None = None
    groups: Sequence[str] | None = None
    claims: Mapping[str, Any] | None = None
    password: Callable[[], str] | None = None
    password_hash: Callable[[], str] | None = None

    @property
    def is_invited(self) -> bool:
        """Return whether a new user gets a mail with a link to set the first password."""
        return self.password is None and self.password_hash is None and not self.disabled


@dataclass(slots=True, eq=False)
class Planned:
    """What a declaration does. `user`: the new state, in no session; `row`: the old one, if any.

    Without `changes`, a user whom a directory has disabled is now disabled by the operator, too.
    """

    declaration: Declaration
    user: User
    row: DeclaredFields | None = None
    changes: differences.Differences = field(default_factory=dict)
    password: str | None = None
    method: str | None = None

    @property
    def is_admin_lost(self) -> bool:
        was = self.row is not None and _may_administer(self.row)
        return was and not _may_administer(self.user)


@dataclass(slots=True)
class Plan:
    """The changes of declarations, and the errors of invalid ones by email address."""

    planned: list[Planned] = field(default_factory=list)
    errors: list[tuple[str, list[str]]] = field(default_factory=list)


def meant(declarations: Collection[Declaration]) -> list[DeclaredFields]:
    """The users with the email addresses or ids of declarations, as they are now."""
    emails = {one.email.strip().lower() for one in declarations}
    return users.declared(emails, {one.user_id for one in declarations if one.user_id})


class _Roster:
    """The users whom declarations refer to, and who has which email address after earlier ones."""

    def __init__(self, declarations: Collection[Declaration]) -> None:
        self._looked_up = {declaration.email.strip().lower() for declaration in declarations}
        rows = meant(declarations)
        self._rows = {row.id: row for row in rows}
        self._owners: dict[str, UUID] = {row.email: row.id for row in rows}
        self._met: set[UUID] = set()

    def find(self, declaration: Declaration) -> DeclaredFields | None:
        """Raises `Invalid` for a user whom an earlier declaration means, too."""
        found = self._owners.get(declaration.email.strip().lower())
        if declaration.user_id in self._rows or declaration.user_id in self._met:
            found = declaration.user_id
        if found in self._met:
            raise Invalid([f"another entry means the same user, {found}"])
        if found:
            self._met.add(found)
        return self._rows[found] if found else None

    def owner_of(self, email: str) -> UUID | None:
        # The file may spell the normalized address differently.
        is_known = email in self._owners or email in self._looked_up
        return self._owners.get(email) if is_known else _owner_of(email)

    def replace(self, user: User, email_before: str | None) -> None:
        if email_before and self._owners.get(email_before) == user.id:
            del self._owners[email_before]
        self._owners[user.email] = user.id
        self._met.add(user.id)


def plan(
    declarations: Collection[Declaration],
    *,
    earlier: Mapping[Declaration, Planned] | None = None,
    any_cost: bool = False,
    report: Callable[[int, int], None] | None = None,
) -> Plan:
    """Compare declarations with the users, and plan the differences; writes nothing.

    `earlier`: plans made on an older snapshot, which hold for users who have not changed since.
    `any_cost`: see `importing.Methods`. `report` gets the number of declarations since its
    last call, and the total.
    """
    roster, methods = (
        _Roster(declarations),
        Methods(users.foreign_hash_methods(), any_cost=any_cost),
    )
    barred = identities.barred()
    plan = Plan()
    for number, declaration in enumerate(declarations, 1):
        if report and number % _REPORT_EVERY == 0:
            report(_REPORT_EVERY, len(declarations))
        try:
            row = roster.find(declaration)
        except Invalid as error:
            plan.errors.append((declaration.email, [str(one) for one in error.errors]))
            continue
        is_barred = bool(row and declaration.disabled and row.id in barred)
        if row is not None and not is_barred and _is_as_declared(row, declaration):
            continue
        before = (earlier or {}).get(declaration)
        if before and before.row == row and (row is None or row.email == before.user.email):
            planned = before
            methods.add({planned.method} if planned.method else ())
        else:
            try:
                planned = (
                    _creation(declaration, roster, methods)
                    if row is None
                    else _alteration(row, declaration, roster)
                )
            except Invalid as error:
                plan.errors.append((declaration.email, [str(one) for one in error.errors]))
                continue
            except OperatorError as error:  # a broken reference
                plan.errors.append((declaration.email, [str(error)]))
                continue
        roster.replace(planned.user, row.email if row else None)
        plan.planned.append(planned)
    return plan


def _is_as_declared(row: DeclaredFields, declaration: Declaration) -> bool:
    claims, groups = declaration.claims, declaration.groups
    return (
        row.email == declaration.email.strip().lower()
        and declaration.user_id in (None, row.id)
        and declaration.name in (None, row.name)
        and declaration.email_verified in (None, row.email_verified)
        and declaration.disabled in (None, row.disabled_at is not None)
        and (groups is None or list(dict.fromkeys(groups)) == row.groups)
        and (claims is None or _without_none(claims) == row.claims)
    )


def _without_none(claims: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in claims.items() if value is not None}


def _creation(declaration: Declaration, roster: _Roster, methods: Methods) -> Planned:
    user = User(id=declaration.user_id or uuid4(), claims={}, groups=[])
    user.email_verified = bool(declaration.email_verified)
    user.disabled_at = clock.now() if declaration.disabled else None
    planned = Planned(declaration, user)
    if declaration.password_hash:
        user.password_hash, planned.method = methods.accept(declaration.password_hash())
    planned.password = declaration.password() if declaration.password else None
    _fill(
        user,
        planned.password,
        email=declaration.email,
        name=declaration.name or "",
        groups=declaration.groups or (),
        claims=declaration.claims,
        owner_of=roster.owner_of,
    )
    return planned


def _alteration(row: DeclaredFields, declaration: Declaration, roster: _Roster) -> Planned:
    if declaration.user_id not in (None, row.id):
        reason = f"this email address is that of another user, {row.id}"
        raise Invalid([reason])
    before, claims = described(row), declaration.claims
    user = User(
        id=row.id, email=row.email, email_verified=row.email_verified, name=row.name,
        claims=row.claims, groups=row.groups, disabled_at=row.disabled_at,
    )  # fmt: skip
    if claims is not None:  # claims that the file lacks are removed
        claims = {**dict.fromkeys(row.claims), **claims}
    _edit(
        user,
        email=declaration.email,
        name=declaration.name,
        groups=declaration.groups,
        claims=claims,
        owner_of=roster.owner_of,
    )
    _switch(user, before, declaration.email_verified, declaration.disabled)
    return Planned(declaration, user, row, differences.between(before, described(user)))


def _may_administer(user: User | DeclaredFields) -> bool:
    return user.disabled_at is None and roles.role_of(user.groups) == roles.ADMIN


def require_administrators(
    actor: Actor, planned: Iterable[Planned], deleted: Collection[UUID] = ()
) -> None:
    """Refuse a plan that removes the last administrators. Raises `NotAllowed`."""
    remaining = {one.user.id for one in planned if _may_administer(one.user)} - set(deleted)
    lost = {one.user.id for one in planned if one.is_admin_lost}
    if not remaining:
        group = context.settings().admin_group
        going = users.administrators_among(group, deleted) if deleted else set()
        roles.keep_others(actor, lost | going)


def hash_passwords(planned: Iterable[Planned]) -> Iterator[int]:
    """Hash the first passwords of new users; yield 1 for each. Slow: call it without locks."""
    for one in planned:
        if one.password is not None and one.user.password_hash is None:
            one.user.password_hash = passwords.hash_password(one.password)
            yield 1


@audit.acting
def carry_out(actor: Actor, planned: Sequence[Planned]) -> None:
    """Create and change the users of a plan in a few statements. The caller has locked them.

    Raises `IntegrityError` if somebody else takes an email address at the same time.
    """
    roles.require_admin(actor)
    for _ in hash_passwords(planned):
        pass
    changed = [one for one in planned if one.row is not None]
    new = [one for one in planned if one.row is None]
    # Before the first write: after it, SQLite lets nobody else write.
    for one in new:
        what = "invitation" if one.declaration.is_invited else None
        audit.event(Event.USER_CREATED, by=actor.by, user=one.user.id, what=what)
    # In the order of the plan: a user may take an address that another one gives up.
    users.change_all([_changed_values(one.user, one.changes) for one in changed if one.changes])
    users.insert_all([one.user for one in new])
    users.note_foreign_hashes({one.method for one in new if one.method})
    for one in changed:
        if one.declaration.disabled:
            identities.forget_bars(one.user.id)
    joined = {name for one in new for name in one.user.groups}
    _take_effect(actor, [(one.user, one.changes) for one in changed], joined)
    notifications.welcome(
        [one.user for one in new if one.declaration.is_invited],
        [one.user for one in new
         if not one.declaration.is_invited and not one.declaration.email_verified],
    )  # fmt: skip


def _changed_values(user: User, changes: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {"id": user.id}
    columns = {
        "email": ("email", "email_verified", "email_changed_at"),
        "name": ("name", "name_key"),
        "disabled": ("disabled_at",),
    }
    for name in changes:
        values |= {column: getattr(user, column) for column in columns.get(name, (name,))}
    return values
