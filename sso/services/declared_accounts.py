"""Accounts that a file declares, thousands at once.

They are compared first, without a lock (`plan`), and written together (`carry_out`), so that nobody
waits long for the database.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import passwords
from sso.errors import OperatorError
from sso.flow import group_ends, moments
from sso.models import User
from sso.models.users import has_ended
from sso.services import accounts, ends, notifications, pictures, roles, subjects
from sso.services import changes as differences
from sso.services.attributes import merged
from sso.services.checks import Invalid
from sso.services.importing import Methods
from sso.store import identities, password_hashes, users
from sso.store.users import DeclaredFields

_REPORT_EVERY = 500


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
    attributes: Mapping[str, Any] | None = None
    ends_at: str | None = None
    group_ends: Mapping[str, str] | None = None
    password: Callable[[], str] | None = None
    password_hash: Callable[[], str] | None = None

    @property
    def is_invited(self) -> bool:
        """Return whether a new user gets a mail with a link to set the first password."""
        return self.password is None and self.password_hash is None and not self.disabled


@dataclass(slots=True, eq=False)
class Planned:
    """What a declaration does. `user`: the new state, in no session; `row`: the old one, if any.

    Without `changes`, a user whom a directory, somebody with limits or an end has disabled is now
    disabled by the operator, too.
    """

    declaration: Declaration
    user: User
    row: DeclaredFields | None = None
    changes: differences.Differences = field(default_factory=dict)
    password: str | None = None
    method: str | None = None

    @property
    def takes_over(self) -> bool:
        """Whether somebody with limits has disabled the user, and now the operator does."""
        is_limited = self.row is not None and self.row.disabled_within_limits
        return is_limited and bool(self.declaration.disabled)

    @property
    def is_disabled_after_end(self) -> bool:
        """Whether the account had ended, and now the operator disables it."""
        had_only_ended = self.row is not None and self.row.is_only_ended
        return had_only_ended and self.user.is_disabled and not self.user.is_only_ended

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
    emails = {declaration.email.strip().lower() for declaration in declarations}
    user_ids = {declaration.user_id for declaration in declarations if declaration.user_id}
    return users.declared(emails, user_ids)


class _Roster:
    """The users whom declarations refer to, and who has which email address after earlier ones."""

    def __init__(self, declarations: Collection[Declaration]) -> None:
        self._looked_up = {declaration.email.strip().lower() for declaration in declarations}
        rows = meant(declarations)
        self._rows = {row.id: row for row in rows}
        self._owners: dict[str, UUID] = {row.email: row.id for row in rows}
        self._met: set[UUID] = set()

    def find(self, declaration: Declaration) -> DeclaredFields | None:
        """Return the user of a declaration. Raises `Invalid` if an earlier one has the user."""
        user_id = self._owners.get(declaration.email.strip().lower())
        if declaration.user_id in self._rows or declaration.user_id in self._met:
            user_id = declaration.user_id
        if user_id in self._met:
            raise Invalid([f"another entry means the same user, {user_id}"])
        if user_id:
            self._met.add(user_id)
        return self._rows[user_id] if user_id else None

    def owner_of(self, email: str) -> UUID | None:
        # The file may spell the normalized address differently.
        is_known = email in self._owners or email in self._looked_up
        return self._owners.get(email) if is_known else accounts.owner_of(email)

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
    roster = _Roster(declarations)
    methods = Methods(password_hashes.foreign_hash_methods(), any_cost=any_cost)
    barred = identities.barred()
    plan = Plan()
    for number, declaration in enumerate(declarations, 1):
        if report and number % _REPORT_EVERY == 0:
            report(_REPORT_EVERY, len(declarations))
        try:
            row = roster.find(declaration)
        except Invalid as error:
            plan.errors.append((declaration.email, [str(message) for message in error.errors]))
            continue
        if row is not None and _is_as_declared(row, declaration):
            by_others = row.id in barred or row.disabled_within_limits or row.is_only_ended
            if not (by_others and _declared_disabled(declaration, row)):
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
                plan.errors.append((declaration.email, [str(message) for message in error.errors]))
                continue
            except OperatorError as error:  # a broken reference
                plan.errors.append((declaration.email, [str(error)]))
                continue
        roster.replace(planned.user, row.email if row else None)
        plan.planned.append(planned)
    return plan


def _is_as_declared(row: DeclaredFields, declaration: Declaration) -> bool:
    try:
        return _has_same_fields(row, declaration)
    except Invalid:  # an end that is none
        return False


def _has_same_fields(row: DeclaredFields, declaration: Declaration) -> bool:
    claims, groups, attributes = (
        _declared_claims(declaration, row), declaration.groups, declaration.attributes
    )  # fmt: skip
    return (
        row.email == declaration.email.strip().lower()
        and declaration.user_id in (None, row.id)
        and declaration.name in (None, row.name)
        and declaration.email_verified in (None, row.email_verified)
        and _declared_disabled(declaration, row) in (None, row.is_disabled)
        and (groups is None or _declared_groups(declaration) == row.groups)
        and _are_same_ends(declaration, row)
        and (claims is None or _without_none(claims) == row.claims)
        and (attributes is None or merged({}, attributes) == row.attributes)
        and _is_same_end(declaration.ends_at, row.ends_at)
    )


def _declared_claims(declaration: Declaration, row: DeclaredFields) -> Mapping[str, Any] | None:
    """Return the declared claims; an uploaded picture stays unless they have another one."""
    claims = declaration.claims
    if claims is None or "picture" in claims or not pictures.is_uploaded(row.claims):
        return claims
    return {**claims, "picture": row.claims["picture"]}


def _declared_groups(declaration: Declaration) -> list[str]:
    """Return the groups of a declaration without those whose declared membership has ended."""
    groups = list(dict.fromkeys(declaration.groups or ()))
    return group_ends.present(groups, _declared_ends(declaration), clock.now())


def _declared_ends(declaration: Declaration) -> dict[str, str]:
    """Return the declared ends of memberships, as they are stored. Raises `Invalid`."""
    declared = declaration.group_ends or {}
    read = {name: ends.read(text, may_be_past=True) for name, text in declared.items()}
    return {name: moments.text_of(end) for name, end in read.items() if end}


def _are_same_ends(declaration: Declaration, row: DeclaredFields) -> bool:
    if declaration.group_ends is None:
        return True
    return _future_ends(declaration) == (row.group_ends or {})


def _future_ends(declaration: Declaration) -> dict[str, str]:
    now = clock.now()
    return {
        name: end
        for name, end in _declared_ends(declaration).items()
        if group_ends.present([name], {name: end}, now)
    }


def _is_same_end(text: str | None, end: datetime | None) -> bool:
    try:
        return text is None or ends.read(text, end) == end
    except Invalid:
        return False


def _declared_disabled(declaration: Declaration, row: DeclaredFields) -> bool | None:
    """Return whether the user is declared to be disabled; `None` if that stays as it is.

    After an end, nobody is enabled by a declaration that keeps the end. And one that names it, as
    an export does, says by `disabled` only what follows from it.
    """
    if not has_ended(row.ends_at) or not _is_same_end(declaration.ends_at, row.ends_at):
        return declaration.disabled
    follows = row.is_only_ended and declaration.ends_at is not None
    return None if follows or not declaration.disabled else True


def _without_none(claims: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in claims.items() if value is not None}


def _creation(declaration: Declaration, roster: _Roster, methods: Methods) -> Planned:
    user = User(id=declaration.user_id or uuid4(), claims={}, attributes={}, groups=[])
    user.email_verified = bool(declaration.email_verified)
    users.set_disabled(user, bool(declaration.disabled))
    planned = Planned(declaration, user)
    if declaration.password_hash:
        user.password_hash, planned.method = methods.accept(declaration.password_hash())
    planned.password = declaration.password() if declaration.password else None
    accounts.fill(
        user,
        planned.password,
        email=declaration.email,
        name=declaration.name or "",
        groups=_declared_groups(declaration),
        group_ends=_future_ends(declaration),
        claims=declaration.claims,
        attributes=declaration.attributes,
        ends_at=declaration.ends_at,
        may_have_ended=bool(declaration.disabled),
        owner_of=roster.owner_of,
        checks_subjects=False,  # `carry_out` checks all together
    )
    return planned


def _alteration(row: DeclaredFields, declaration: Declaration, roster: _Roster) -> Planned:
    if declaration.user_id not in (None, row.id):
        reason = f"this email address is that of another user, {row.id}"
        raise Invalid([reason])
    before, claims = accounts.described(row), _declared_claims(declaration, row)
    attributes = declaration.attributes
    user = User(**row._asdict())
    if claims is not None:  # claims that the file lacks are removed
        claims = {**dict.fromkeys(row.claims), **claims}
    if attributes is not None:
        attributes = {**dict.fromkeys(row.attributes), **attributes}
    member_ends = None
    if declaration.group_ends is not None:  # those that the file lacks are removed
        member_ends = {**dict.fromkeys(row.group_ends or {}, ""), **_future_ends(declaration)}
    accounts.edit(
        user,
        email=declaration.email,
        name=declaration.name,
        groups=None if declaration.groups is None else _declared_groups(declaration),
        group_ends=member_ends,
        claims=claims,
        attributes=attributes,
        ends_at=declaration.ends_at,
        may_have_ended=bool(declaration.disabled),
        owner_of=roster.owner_of,
        checks_subjects=False,  # `carry_out` checks all together
    )
    is_disabled = _declared_disabled(declaration, row)
    accounts.switch(user, before, declaration.email_verified, is_disabled)
    return Planned(declaration, user, row, differences.between(before, accounts.described(user)))


def _may_administer(user: User | DeclaredFields) -> bool:
    """Return whether a user is an administrator whose account and membership have no end."""
    lasts = user.disabled_at is None and user.ends_at is None
    lasts = lasts and context.settings().admin_group not in (user.group_ends or {})
    return lasts and roles.role_of(user.groups) == roles.ADMIN


def require_administrators(
    actor: Actor, planned: Iterable[Planned], deleted: Collection[UUID] = ()
) -> None:
    """Refuse a plan that removes the last administrators. Raises `NotAllowed`."""
    remaining = {entry.user.id for entry in planned if _may_administer(entry.user)} - set(deleted)
    lost = {entry.user.id for entry in planned if entry.is_admin_lost}
    if not remaining:
        group = context.settings().admin_group
        going = users.administrators_among(group, deleted) if deleted else set()
        roles.keep_others(actor, lost | going)


def hash_passwords(planned: Iterable[Planned]) -> Iterator[int]:
    """Hash the first passwords of new users; yield 1 for each. Slow: call it without locks."""
    for entry in planned:
        if entry.password is not None and entry.user.password_hash is None:
            entry.user.password_hash = passwords.hash_password(entry.password)
            yield 1


@audit.acting
def carry_out(actor: Actor, planned: Sequence[Planned]) -> None:
    """Create and change the users of a plan in a few statements. The caller has locked them.

    Raises `IntegrityError` if somebody else takes an email address at the same time.
    """
    for _ in hash_passwords(planned):
        pass
    changed = [entry for entry in planned if entry.row is not None]
    new = [entry for entry in planned if entry.row is None]
    # All that takes long comes before the first write: after it, SQLite lets nobody else write.
    invited = [entry.user for entry in new if entry.declaration.is_invited]
    unverified = [entry.user for entry in new if _has_to_verify(entry.declaration)]
    mails = notifications.welcome(invited, unverified)
    rows = users.rows_of([entry.user for entry in new])
    for entry in new:
        what = "invitation" if entry.declaration.is_invited else None
        person = {"email": entry.user.email, "name": entry.user.name}
        audit.event(Event.USER_CREATED, person, by=actor.by, user=entry.user.id, what=what)
    # In the order of the plan: a user may take an address that another user gives up.
    values = [_changed_values(entry) for entry in changed]
    users.change_all([row for row in values if len(row) > 1])  # not only an id
    users.insert_all(rows)
    subjects.require_distinct((entry.user.id, entry.user.attributes) for entry in planned)
    password_hashes.note_foreign_hashes({entry.method for entry in new if entry.method})
    for entry in changed:
        if entry.declaration.disabled:
            identities.forget_bars(entry.user.id)
    joined = {name for entry in new for name in entry.user.groups}
    disabled = [entry.user for entry in changed if entry.is_disabled_after_end]
    changes = [(entry.user, entry.changes) for entry in changed]
    accounts.take_effect(actor, changes, joined, disabled_after_end=disabled)
    for mails_of_kind in mails:
        notifications.queue_all(mails_of_kind)


def _has_to_verify(declaration: Declaration) -> bool:
    return not declaration.is_invited and not declaration.email_verified


_ENDS = ("group_ends", "group_ends_told", "groups_due_at")


def _changed_values(entry: Planned) -> dict[str, Any]:
    user = entry.user
    values: dict[str, Any] = {"id": user.id}
    if entry.takes_over or entry.is_disabled_after_end:
        values["disabled_at"] = user.disabled_at
        values["disabled_within_limits"] = user.disabled_within_limits
    columns = {
        "attributes": ("attributes", "attribute_origins"),
        "email": ("email", "email_verified", "email_changed_at"),
        "name": ("name", "name_key"),
        "disabled": ("disabled_at", "disabled_within_limits", "ends_at"),
        "ends_at": ("disabled_at", "ends_at", "end_announced_at"),
        "groups": ("stored_groups", *_ENDS),
        "group_ends": _ENDS,
    }
    for name in entry.changes:
        values |= {column: getattr(user, column) for column in columns.get(name, (name,))}
    return values
