"""Statements about users: find, list, filter and change them."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from sso import clock
from sso.database import dialects
from sso.database.dialects import begins
from sso.extensions import db
from sso.flow import group_ends
from sso.models import Identity, User
from sso.models.users import folded, has_ended, is_only_ended
from sso.store import groups, prepared, scim_resources
from sso.store.lists import MOST_MATCHES, Match, Order, rows_with, update_returning, write_one

_SHORTEST_ID = 8  # the part of a UUID before its first dash
_HEX = re.compile(r"[0-9a-f]{1,32}")


@dataclass(frozen=True)
class UserProfile:
    """The fields of a user that claims are made from (see `flow.scopes`)."""

    id: UUID
    name: str
    email: str
    email_verified: bool
    claims: dict[str, Any]
    attributes: dict[str, Any]
    groups: list[str]
    updated_at: datetime


USER_PROFILE = (
    *prepared.columns(UserProfile, prepared.table(User), "user_"),
    prepared.table(User).c.group_ends.label("user_group_ends"),
)
"""The columns that `profile_of` reads."""


def profile_of(row: prepared.Row) -> UserProfile:
    """Return the user in the columns of `USER_PROFILE`, with the groups of this moment."""
    if ends := row["user_group_ends"]:
        row = {**row, "user_groups": group_ends.present(row["user_groups"], ends, clock.now())}
    return prepared.record(UserProfile, row, "user_")


def enabled(now: datetime | None = None) -> ColumnElement[bool]:
    """Return the condition that a user is not disabled, and that the account has not ended."""
    now = now or clock.now()
    return and_(User.disabled_at.is_(None), or_(User.ends_at.is_(None), User.ends_at > now))


ENABLED = and_(
    User.disabled_at.is_(None), or_(User.ends_at.is_(None), User.ends_at > bindparam("now"))
)
"""`enabled` for statements that are built once; they have the parameter `now`."""


def find(user_id: UUID) -> User | None:
    return db.session.scalar(select(User).where(User.id == user_id))


_LOCK = dialects.locking(User, User.email, User.id == bindparam("user_id"))
_LOCK_ENABLED = _LOCK.where(ENABLED)


def lock(user_id: UUID) -> User | None:
    """Lock a user who is not disabled until the transaction ends, and return the current row."""
    user: User | None = db.session.scalar(_LOCK_ENABLED, {"user_id": user_id, "now": clock.now()})
    return user


def lock_any(user_id: UUID) -> User | None:
    """Lock a user, disabled or not, until the transaction ends, and return the current row."""
    user: User | None = db.session.scalar(_LOCK, {"user_id": user_id})
    return user


def forget_devices(user_id: UUID) -> None:
    """Void the cookies of all browsers that a user has signed in from (`device_cookie`), and of
    sign-ins that wait for their second factor (`mfa.policy`).

    Locks the user, as a sign-in does first of all: call it before sessions are ended.
    """
    db.session.flush()  # the object of the user is read again
    update_returning(
        User,
        update(User)
        .where(User.id == user_id)
        .values(
            device_version=User.device_version + 1,
            updated_at=User.updated_at,
            version=User.version,
        ),
    )


_FIND_DEVICE = select(User.id, User.device_version).where(User.email == bindparam("email"))


def find_device(email: str) -> tuple[UUID, int] | None:
    """Return the id of a user, and the device version that a known browser's cookie must have."""
    row = db.session.execute(_FIND_DEVICE, {"email": email.strip().lower()}).first()
    return (row[0], row[1]) if row else None


def find_by_email(email: str) -> User | None:
    """Return a user by email address. Case does not matter."""
    return db.session.scalar(select(User).where(User.email == email.strip().lower()))


def matching(text: str) -> Match[User]:
    """Return the users that an operator may mean: by id or email; else by name; else by the
    beginning of one of these. Case does not matter.

    People choose their own names and email addresses. So a whole id or email address is never
    compared with names, nor with longer email addresses.
    """
    text = text.strip()
    try:
        user = find(UUID(text))
    except ValueError:
        user = find_by_email(text)
        is_whole = not text or "@" in text
    else:
        is_whole = True
    if user or is_whole:
        return Match([user] if user else [], is_exact=True)
    key = folded(text)
    namesakes = _first_matches(
        User.name_key == key, func.lower(User.name) == func.lower(text), by=User.email
    )
    return Match(namesakes or _beginning(text, key))


def _beginning(text: str, key: str) -> Sequence[User]:
    """Return the users whose email, name or id begins with the text.

    Each in its own statement: one for all would make the database read all users.
    """
    users = [
        *_first_matches(
            begins(User.email, text.lower()),
            by=dialects.order_of_beginnings(User.email, descending=False),
        ),
        *_first_matches(
            begins(User.name_key, key),
            by=dialects.order_of_beginnings(User.name_key, descending=False),
        ),
    ]
    digits = text.replace("-", "").lower()
    if len(text) >= _SHORTEST_ID and _HEX.fullmatch(digits):
        lowest, highest = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
        users += _first_matches(User.id.between(lowest, highest), by=User.id)
    by_id = {user.id: user for user in users}
    return sorted(by_id.values(), key=lambda user: user.email)[: MOST_MATCHES + 1]


def _first_matches(*conditions: ColumnElement[bool], by: Any) -> Sequence[User]:
    return db.session.scalars(
        select(User).where(*conditions).order_by(by).limit(MOST_MATCHES + 1)
    ).all()


def existing(emails: Iterable[str], ids: Iterable[UUID]) -> tuple[dict[str, UUID], set[UUID]]:
    """Return those of these email addresses that users have, with their ids; and those of these ids
    that users have.
    """
    columns = select(User.email, User.id)
    by_email = db.session.execute(columns.where(User.email.in_(list(emails))))
    by_id = db.session.scalars(select(User.id).where(User.id.in_(list(ids))))
    return {row.email: row.id for row in by_email}, set(by_id)


class DeclaredFields(NamedTuple):
    """The fields of a user that a file may declare."""

    id: UUID
    email: str
    name: str
    email_verified: bool
    claims: dict[str, Any]
    attributes: dict[str, Any]
    attribute_origins: dict[str, str] | None
    groups: list[str]
    disabled_at: datetime | None
    disabled_within_limits: bool
    ends_at: datetime | None
    group_ends: dict[str, str] | None
    group_ends_told: dict[str, str] | None

    @property
    def is_disabled(self) -> bool:
        """See `User.is_disabled`."""
        return self.disabled_at is not None or has_ended(self.ends_at)

    @property
    def is_only_ended(self) -> bool:
        """See `User.is_only_ended`."""
        return is_only_ended(self.disabled_at, self.ends_at)


_DECLARED = select(*(getattr(User, name) for name in DeclaredFields._fields))


def declared(emails: Collection[str], ids: Collection[UUID]) -> list[DeclaredFields]:
    """Return the users with these email addresses or ids."""
    rows = (*rows_with(_DECLARED, User.email, emails), *rows_with(_DECLARED, User.id, ids))
    fields = {row.id: DeclaredFields(*row) for row in rows}.values()
    now = clock.now()
    return [
        row._replace(
            groups=(present := group_ends.present(row.groups, row.group_ends, now)),
            group_ends={name: end for name, end in row.group_ends.items() if name in present},
            # Those that have passed hold (`User.ended_groups`).
            group_ends_told=(row.group_ends_told or {})
            | {name: end for name, end in row.group_ends.items() if name not in present},
        )
        if row.group_ends
        else row
        for row in fields
    ]


def ids_and_emails() -> dict[UUID, str]:
    """Return the email addresses of all users by id, oldest users first."""
    rows = db.session.execute(select(User.id, User.email).order_by(User.created_at, User.id))
    return {row.id: row.email for row in rows}


def administrators_among(group: str, ids: Collection[UUID]) -> set[UUID]:
    """Return which of these users are enabled and in the group."""
    rows = db.session.scalars(select(User).where(groups.has_member(group), enabled()))
    return {user.id for user in rows if group in user.groups} & set(ids)


def administrators(group: str, most: int) -> list[User]:
    """Return the first enabled users by email who are in the group now."""
    statement = select(User).where(groups.has_member(group), enabled()).order_by(User.email)
    return [user for user in db.session.scalars(statement) if group in user.groups][:most]


def lock_all(ids: Collection[UUID]) -> None:
    """Lock these users until the transaction ends; on SQLite, a write locks the whole database."""
    if ids:
        lock_any(min(ids))
        groups.lock_users(ids)


def set_disabled(
    user: User,
    is_disabled: bool,
    directory: Identity | None = None,
    at: datetime | None = None,
    *,
    within_limits: bool = False,
) -> None:
    """Disable or enable a user. `directory`: the identity whose directory does so, no operator.

    The same moment on both tells later that only the directory has disabled the user. `at`: the
    end of the account, which tells the same about that. To enable a user removes an end that has
    passed. `within_limits`: somebody does so whose permission has limits.
    """
    is_first = user.disabled_at is None or user.is_only_ended
    user.disabled_within_limits = (
        is_disabled and within_limits and (is_first or user.disabled_within_limits)
    )
    moment = at or clock.now()
    if at is None and moment == user.ends_at:
        moment -= timedelta.resolution  # it would look like the end
    user.disabled_at = moment if is_disabled else None
    if directory:
        directory.barred_at = user.disabled_at
    elif not is_disabled and has_ended(user.ends_at):
        user.ends_at = user.end_announced_at = None


def set_end(user: User, ends_at: datetime | None) -> None:
    """Set when an account ends. A user whom only the end before disabled is enabled again."""
    if user.disabled_at is not None and user.disabled_at == user.ends_at:
        set_disabled(user, False)
    user.ends_at, user.end_announced_at = ends_at, None


_BATCH = 100


def ended(now: datetime) -> Sequence[UUID]:
    """Return some users whose accounts have ended and who are not disabled yet."""
    statement = select(User.id).where(User.ends_at <= now, User.disabled_at.is_(None))
    return db.session.scalars(statement.order_by(User.ends_at).limit(_BATCH)).all()


def ending(now: datetime, until: datetime) -> Sequence[User]:
    """Return some users whose accounts end in this time and who have not been told."""
    statement = select(User).where(
        User.ends_at > now,
        User.ends_at <= until,
        User.disabled_at.is_(None),
        User.end_announced_at.is_(None),
    )
    return db.session.scalars(statement.order_by(User.ends_at).limit(_BATCH)).all()


def with_groups_due(now: datetime) -> Sequence[UUID]:
    """Return some users whose memberships the worker has to look at."""
    statement = select(User.id).where(User.groups_due_at <= now)
    return db.session.scalars(statement.order_by(User.groups_due_at).limit(_BATCH)).all()


def note_told(user: User, told: Mapping[str, str]) -> None:
    """Record the ends of memberships that a user, who is locked, is told of.

    It is no change of the user: applications see none.
    """
    told = {**(user.group_ends_told or {}), **told}
    statement = (
        update(User)
        .where(User.id == user.id)
        .values(
            group_ends_told=told or None,
            groups_due_at=group_ends.next_due(user.group_ends or {}, told),
            updated_at=User.updated_at,
            version=User.version,
        )
    )
    write_one(statement)


def note_announced(user: User) -> bool:
    """Record that a user is told of this end; return False if that was done, or the end moved.

    It is no change of the user: applications see none.
    """
    return write_one(
        update(User)
        .where(User.id == user.id, User.ends_at == user.ends_at, User.end_announced_at.is_(None))
        .values(end_announced_at=clock.now(), updated_at=User.updated_at, version=User.version)
    )


def change_all(values: Sequence[Mapping[str, Any]]) -> None:
    """Update users in this order; each mapping has the id and the new column values."""
    if values:
        db.session.execute(update(User), list(values))


_INSERTED = (*DeclaredFields._fields, "name_key", "password_hash", "groups_due_at")


def rows_of(users: Iterable[User]) -> list[dict[str, Any]]:
    """Return the rows of users that are in no session, in the order of their email addresses.

    In that order SQLite inserts them in a quarter less time: neighbours in most of its indexes
    come one after the other.
    """
    return sorted(
        ({name: getattr(user, name) for name in _INSERTED} for user in users),
        key=lambda row: str(row["email"]),
    )


def insert_all(rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows of many users; see `rows_of`."""
    if rows:
        db.session.connection().execute(insert(User.__table__), list(rows))  # type: ignore[arg-type]


def add_all(users: Iterable[User]) -> None:
    db.session.add_all(users)
    db.session.flush()


def every() -> Sequence[User]:
    """Return all users, oldest first."""
    return db.session.scalars(select(User).order_by(User.created_at, User.id)).all()


def batch(after: UUID | None, limit: int) -> Sequence[User]:
    """Return the next users by their IDs, and forget those before: of many, a batch at a time."""
    db.session.expunge_all()
    statement = select(User).order_by(User.id).limit(limit)
    return db.session.scalars(statement.where(User.id > after) if after else statement).all()


def of_domain(domain: str, before: datetime) -> Sequence[User]:
    """Return the users with an email address at a domain who were created before a moment."""
    at_domain = User.email.endswith(f"@{domain}", autoescape=True)
    return db.session.scalars(select(User).where(at_domain, User.created_at < before)).all()


BY_EMAIL = Order((User.email,))
BY_BEGINNING = Order((User.email,), is_of_beginnings=True)
BY_NAME = Order((User.name_key, User.id), is_of_beginnings=True)
BY_ACTIVITY = Order((User.last_active_at, User.id))
CONTAINING = Order((User.email,), is_key_first=True)


def with_email(beginning: str) -> Select[User]:
    """Select the users whose email begins with this text; see `order_of`."""
    return select(User).where(begins(User.email, beginning.lower()))


def order_of(beginning: str, *, has_state: bool = False) -> Order:
    """Return the order by email for `with_email`, for which there is an index.

    `has_state`: only users with one of the conditions `is_disabled` and those below it.
    """
    return BY_BEGINNING if beginning or has_state else BY_EMAIL


def with_name(beginning: str) -> Select[User]:
    """Select the users whose name begins with this text, without those of `with_email`, to be
    ordered by `BY_NAME`.
    """
    statement = select(User).where(begins(User.name_key, folded(beginning)))
    return statement.where(~begins(User.email, beginning.lower()))


def containing(text: str, most: int | None = None) -> Select[User]:
    """Select the users with this text anywhere in email or name, to be ordered by `CONTAINING`.

    It reads a whole index. `most`: only among so many users, the first ones by email, unless an
    index has the trigrams of all; see `is_search_bounded`.
    """
    statement = select(User).where(_contains(text))
    if most is not None and is_search_bounded(most):
        beyond = select(User.email).order_by(User.email).offset(most).limit(1)
        statement = statement.where(User.email < beyond.scalar_subquery())
    return statement


def _contains(text: str) -> ColumnElement[bool]:
    in_name = User.name_key.contains(folded(text), autoescape=True)
    return in_name | User.email.contains(text.lower(), autoescape=True)


def in_group(group: str, beginning: str = "") -> tuple[Order, Select[User]]:
    """Select the members of a group whose email begins with this text; return their order, too."""
    if dialects.is_postgresql():
        return order_of(beginning), with_email(beginning).where(groups.has_member(group))
    members = groups.MEMBERSHIPS
    statement = select(User).join(members, members.c.user_id == User.id)
    return Order((members.c.email,)), statement.where(
        members.c.name == group, begins(members.c.email, beginning.lower())
    )


# Partial indexes answer these.
def is_disabled() -> ColumnElement[bool]:
    return User.disabled_at.is_not(None)


def is_invited() -> ColumnElement[bool]:
    return User.password_hash.is_(None) & User.disabled_at.is_(None)


def is_active(days: int) -> ColumnElement[bool]:
    """Return the condition that a user was active in the last days."""
    return User.last_active_at >= clock.now() - timedelta(days=days)


def is_inactive(days: int) -> ColumnElement[bool]:
    """Return the condition that a user was active once, but not in the last days."""
    return User.last_active_at < clock.now() - timedelta(days=days)


def is_unverified() -> ColumnElement[bool]:
    return ~User.email_verified


def count() -> int:
    return db.session.scalar(select(func.count()).select_from(User)) or 0


# People, for a text anywhere, where no index has its trigrams: by a command, and by a page.
MOST_LOOKED_THROUGH = 1_000_000
MOST_FOR_A_PAGE = 200_000


def listed(text: str | None, group: str | None, limit: int) -> Sequence[User]:
    """Return the first users in the order of their emails, only those with this text in email or
    name and in this group.

    Without a group, the text is looked for among `MOST_LOOKED_THROUGH`.
    """
    order, statement = in_group(group) if group is not None else (BY_EMAIL, select(User))
    if text and group is not None:
        statement = statement.where(_contains(text))
    elif text:
        order, statement = CONTAINING, containing(text, MOST_LOOKED_THROUGH)
    return order.page(statement, None, limit).rows


def is_search_bounded(most: int) -> bool:
    """Return whether `containing` looks for a text among the first `most` users only."""
    return not scim_resources.has_trigrams() and scim_resources.are_more_than(most)


def emails(ids: Iterable[str]) -> dict[str, str]:
    """Return email addresses by id, as the audit trail writes it, without deleted users."""
    user_ids = [user_id for text in ids if (user_id := _uuid(text))]
    rows = rows_with(select(User.id, User.email), User.id, user_ids)
    return {str(row.id): row.email for row in rows}


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def add(user: User) -> None:
    db.session.add(user)
    db.session.flush()


def remove(user: User) -> None:
    """Delete a user with sessions, consents, grants, codes and tokens (by foreign key)."""
    db.session.execute(delete(User).where(User.id == user.id))


_ADMINISTRATORS = 0  # the second half of the key of an advisory lock


def administrators_remain(group: str, without: Collection[UUID]) -> bool:
    """Return whether other enabled users are in the group whose accounts and memberships have no
    end. The next caller waits until this transaction ends.

    On PostgreSQL, two administrators could otherwise remove each other at the same time.
    """
    dialects.exclusive_lock(dialects.LOCK_KIND, _ADMINISTRATORS)
    lasting = select(User.group_ends).where(
        groups.has_member(group), User.disabled_at.is_(None), User.ends_at.is_(None)
    )
    ends = db.session.scalars(lasting.where(User.id.not_in(without)))
    return any(group not in (of_user or {}) for of_user in ends)
