"""Statements about browser sessions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    inspect,
    select,
    update,
)

from sso import clock, database
from sso.extensions import db
from sso.flow import group_ends
from sso.models import BrowserSession, Client, Consent, Grant, PushedRequest, User
from sso.store import clients, groups, prepared, redemption
from sso.store.clients import RegisteredClient
from sso.store.lists import Order, batches, write
from sso.store.redemption import Pushed
from sso.store.users import ENABLED


class CurrentSession(NamedTuple):
    """A live session and its user."""

    session: BrowserSession
    user: User


@dataclass(frozen=True)
class ConsentRecord:
    """The scopes that a user allowed a client, and those that the user declined."""

    scope: str
    declined: str
    updated_at: datetime


@dataclass(frozen=True)
class ResourceOwner:
    """The signed-in user (RFC 6749 §1.1) with the session and the consent for a client, as far as
    that client's request needs them.
    """

    session_id: UUID
    auth_time: datetime
    amr: str
    acr: str
    last_seen_at: datetime
    ends_at: datetime | None
    decisions_used_until: datetime | None  # see `flow.decision`
    user_id: UUID
    groups: list[str]
    user_seen: datetime  # when the user was last changed
    locale: str | None  # the language chosen for the account
    terms_version: str | None  # the version of the terms of service that the user has accepted
    consent: ConsentRecord | None


# Built once: building them takes as long as running them.
_LIVE = and_(BrowserSession.ended_at.is_(None), BrowserSession.expires_at > bindparam("now"))
_FIND_LIVE = (
    select(BrowserSession, User)
    .join(User, User.id == BrowserSession.user_id)
    .where(BrowserSession.digest == bindparam("digest"), _LIVE, ENABLED)
)
_SESSIONS, _USERS = prepared.table(BrowserSession), prepared.table(User)
_OF_SESSION = ("auth_time", "amr", "acr", "last_seen_at", "ends_at", "decisions_used_until")
_OWNER = (
    _SESSIONS.c.id.label("owner_session_id"),
    *(_SESSIONS.c[name].label(f"owner_{name}") for name in _OF_SESSION),
    _USERS.c.id.label("owner_user_id"),
    _USERS.c.groups.label("owner_groups"),
    _USERS.c.group_ends.label("owner_group_ends"),
    _USERS.c.updated_at.label("owner_user_seen"),
    _USERS.c.terms_version.label("owner_terms_version"),
    _USERS.c.claims["locale"].as_string().label("owner_locale"),
)
_FIND_WITH_CLIENT = (
    select(
        *clients.COLUMNS,
        *_OWNER,
        *prepared.columns(ConsentRecord, prepared.table(Consent), "consent_"),
    )
    .select_from(Client)
    .outerjoin(BrowserSession, and_(BrowserSession.digest == bindparam("digest"), _LIVE))
    .outerjoin(User, and_(User.id == BrowserSession.user_id, ENABLED))
    .outerjoin(Consent, and_(Consent.user_id == User.id, Consent.client_id == Client.client_id))
    .where(Client.client_id == bindparam("client_id"), Client.disabled_at.is_(None))
)
_PUSHED = prepared.table(PushedRequest)
_FIND_WITH_PUSHED = _FIND_WITH_CLIENT.add_columns(
    _PUSHED.c.digest.label("pushed_digest"), *prepared.columns(Pushed, _PUSHED, "pushed_")
).outerjoin(_PUSHED, _PUSHED.c.digest == bindparam("pushed"))
_FIND_OWNER = (
    select(*_OWNER)
    .select_from(BrowserSession)
    .join(User, and_(User.id == BrowserSession.user_id, ENABLED))
    .where(BrowserSession.digest == bindparam("digest"), _LIVE)
)


def find_live(digest: str) -> CurrentSession | None:
    """Return the live session with this digest and its enabled user."""
    row = db.session.execute(_FIND_LIVE, {"digest": digest, "now": clock.now()}).first()
    return CurrentSession(row[0], row[1]) if row else None


def find_live_fresh(digest: str) -> CurrentSession | None:
    """Do as `find_live`, and read both rows again if this transaction has read them before."""
    fresh = _FIND_LIVE.execution_options(populate_existing=True)
    row = db.session.execute(fresh, {"digest": digest, "now": clock.now()}).first()
    return CurrentSession(row[0], row[1]) if row else None


def find_with_client(
    connection: Connection, client_id: str, digest: str
) -> tuple[RegisteredClient | None, ResourceOwner | None]:
    """Return the enabled client, and the live session with its user and consent. One statement."""
    values = {"client_id": client_id, "digest": digest, "now": clock.now()}
    row = prepared.first(connection, _FIND_WITH_CLIENT, values)
    return _client_and_owner(row) if row else (None, None)


def find_with_client_and_pushed(
    connection: Connection, client_id: str, digest: str, pushed_digest: str
) -> tuple[RegisteredClient | None, ResourceOwner | None, Pushed | None]:
    """Do as `find_with_client`, and return the pushed request with this digest. One statement, two
    if the client is not enabled.
    """
    values = {"client_id": client_id, "digest": digest, "now": clock.now()}
    row = prepared.first(connection, _FIND_WITH_PUSHED, {**values, "pushed": pushed_digest})
    if row is None:
        return None, None, redemption.find_pushed(connection, pushed_digest)
    pushed = prepared.record(Pushed, row, "pushed_") if row["pushed_digest"] else None
    return *_client_and_owner(row), pushed


def _client_and_owner(row: prepared.Row) -> tuple[RegisteredClient, ResourceOwner | None]:
    client = clients.registered_client(row)
    if row["owner_user_id"] is None:  # a disabled user is not joined
        return client, None
    consent = prepared.record(ConsentRecord, row, "consent_") if row["consent_updated_at"] else None
    return client, _owner(row, consent)


def find_owner(connection: Connection, digest: str) -> ResourceOwner | None:
    """Return the live session with its user, for a client that is not stored."""
    row = prepared.first(connection, _FIND_OWNER, {"digest": digest, "now": clock.now()})
    return _owner(row, None) if row else None


def _owner(row: prepared.Row, consent: ConsentRecord | None) -> ResourceOwner:
    if ends := row["owner_group_ends"]:
        row = {**row, "owner_groups": group_ends.present(row["owner_groups"], ends, clock.now())}
    return prepared.record(ResourceOwner, row, "owner_", consent=consent)


def add(session: BrowserSession) -> None:
    """Insert a new session, or write the changes of one that exists."""
    if inspect(session).transient:
        prepared.add(session)
    else:
        db.session.flush()


_TOUCH = (
    update(_SESSIONS)
    .where(_SESSIONS.c.id == bindparam("session_id"))
    .values(last_seen_at=bindparam("seen"), expires_at=bindparam("until"))
)


def touch(connection: Connection, session_id: UUID, now: datetime, expires_at: datetime) -> None:
    """Record that a session was used now, and prolong it."""
    values = {"session_id": session_id, "seen": now, "until": expires_at}
    prepared.changed(connection, _TOUCH, values)


_OWNER_ACTIVE = (
    update(_USERS)
    .where(
        # Two tabs share the lock of the user, and would wait for each other.
        _USERS.c.id.in_(
            select(_USERS.c.id)
            .join(_SESSIONS, _SESSIONS.c.user_id == _USERS.c.id)
            .where(_SESSIONS.c.id == bindparam("session_id"))
            .with_for_update(of=_USERS, key_share=True, skip_locked=True)
        )
    )
    .values(
        last_active_at=bindparam("now"), version=_USERS.c.version, updated_at=_USERS.c.updated_at
    )
)


def note_active(connection: Connection, session_id: UUID, now: datetime) -> None:
    """Record that the owner of a session is active now, unless another transaction has locked the
    user. It locks the user.
    """
    prepared.changed(connection, _OWNER_ACTIVE, {"session_id": session_id, "now": now})


_ACTIVE = (
    update(_USERS)
    .where(_USERS.c.id == bindparam("user"))
    .values(
        last_active_at=bindparam("moment"),
        version=_USERS.c.version,
        updated_at=_USERS.c.updated_at,
    )
)


def note_owner_active(connection: Connection, user_id: UUID, now: datetime) -> None:
    """Do as `note_active` for a user that this transaction has locked."""
    prepared.changed(connection, _ACTIVE, {"user": user_id, "moment": now})


def note_all_active(moments: Mapping[UUID, datetime]) -> None:
    """Record when users were last active, as `note_active` does for one."""
    if moments:
        rows = [{"user": user_id, "moment": moment} for user_id, moment in moments.items()]
        db.session.connection().execute(_ACTIVE, rows)


def fill_last_active(after: UUID | None, size: int) -> UUID | None:
    """Record when the users of the next `size` sessions were last active, by their sessions, where
    this is not known: versions up to 0.1 did not note it.

    Return the last session, or `None` at the end. Users whom another transaction has locked are
    left out: their next use of a session is noted.
    """
    in_order = select(_SESSIONS.c.id).order_by(_SESSIONS.c.id)
    if after is not None:
        in_order = in_order.where(_SESSIONS.c.id > after)
    ids = db.session.scalars(in_order.limit(size)).all()
    if not ids:
        return None
    owners = select(_SESSIONS.c.user_id).where(_SESSIONS.c.id.between(ids[0], ids[-1]))
    is_unknown = _USERS.c.last_active_at.is_(None)
    free = select(_USERS.c.id).where(is_unknown, _USERS.c.id.in_(owners))
    last_seen = select(func.max(_SESSIONS.c.last_seen_at)).where(_SESSIONS.c.user_id == _USERS.c.id)
    write(
        update(_USERS)
        .where(is_unknown, _USERS.c.id.in_(free.with_for_update(key_share=True, skip_locked=True)))
        .values(
            last_active_at=last_seen.scalar_subquery(),
            version=_USERS.c.version,
            updated_at=_USERS.c.updated_at,
        )
    )
    return ids[-1] if len(ids) == size else None


_USE_DECISIONS = (
    update(_SESSIONS)
    .where(
        _SESSIONS.c.id == bindparam("session_id"),
        _SESSIONS.c.decisions_used_until.is_not_distinct_from(bindparam("before")),
    )
    .values(decisions_used_until=bindparam("until"))
)


def use_decisions(
    connection: Connection, session_id: UUID, before: datetime | None, until: datetime
) -> bool:
    """Mark sign-ins and consents up to a moment as used; return False if another request did."""
    values = {"session_id": session_id, "before": before, "until": until}
    return prepared.changed(connection, _USE_DECISIONS, values)


def forbid_enrolment(user_id: UUID) -> None:
    """Withdraw the permission to add the first factor from all sessions of a user."""
    db.session.execute(
        update(BrowserSession)
        .where(BrowserSession.user_id == user_id, BrowserSession.enrolment_allowed_at.is_not(None))
        .values(enrolment_allowed_at=None)
    )


def lock_of_users(user_ids: Sequence[UUID]) -> None:
    """Lock the live sessions of users before their grants end. The users are locked already."""
    for batch in batches(user_ids):
        db.session.execute(
            select(BrowserSession.id)
            .where(BrowserSession.user_id.in_(batch), BrowserSession.ended_at.is_(None))
            .order_by(BrowserSession.id)
            .with_for_update(key_share=True)
        )


def end(*conditions: ColumnElement[bool]) -> Sequence[UUID]:
    """End the live sessions that meet the conditions, and return their ids.

    The caller ends the grants that were made in them.
    """
    now = clock.now()
    return db.session.scalars(
        update(BrowserSession)
        .where(BrowserSession.ended_at.is_(None), BrowserSession.expires_at > now, *conditions)
        .values(ended_at=now)
        .returning(BrowserSession.id)
        .execution_options(synchronize_session=False)
    ).all()


_SURPLUS = (
    select(_SESSIONS.c.id)
    .where(
        _SESSIONS.c.user_id == bindparam("user_id"),
        _SESSIONS.c.ended_at.is_(None),
        _SESSIONS.c.expires_at > bindparam("now"),
    )
    .limit(1)
    .offset(bindparam("most"))
)


def surplus(user_id: UUID, most: int) -> Sequence[UUID]:
    """Return the ids of a user's live sessions, except the `most` that were used last."""
    values = {"user_id": user_id, "now": clock.now(), "most": most}
    if prepared.first(database.session_connection(), _SURPLUS, values) is None:
        return ()
    statement = _live_of(user_id).with_only_columns(BrowserSession.id).offset(most)
    return db.session.scalars(statement).all()


def of_user(user_id: UUID) -> Sequence[BrowserSession]:
    """Return a user's live sessions, the last used first."""
    return db.session.scalars(_live_of(user_id)).all()


def _live_of(user_id: UUID) -> Select[BrowserSession]:
    return (
        select(BrowserSession)
        .where(
            BrowserSession.user_id == user_id,
            BrowserSession.ended_at.is_(None),
            BrowserSession.expires_at > clock.now(),
        )
        .order_by(BrowserSession.last_seen_at.desc())
    )


NEWEST_FIRST = Order((BrowserSession.created_at, BrowserSession.id), is_descending=True)


def live(user_id: UUID | None = None, *, at: datetime | None = None) -> Select[BrowserSession]:
    """Select the live sessions of a user, or of everyone, to be ordered by `NEWEST_FIRST`.

    `at`: the moment at which they are live; by default, now.
    """
    statement = select(BrowserSession).where(
        BrowserSession.ended_at.is_(None), BrowserSession.expires_at > (at or clock.now())
    )
    if user_id is not None:
        return statement.where(BrowserSession.user_id == user_id)
    return statement


def live_in(names: Collection[str], *, at: datetime | None = None) -> Select[BrowserSession]:
    """Select the live sessions of the members of these groups; see `live`."""
    members = select(User.id).where(groups.has_any(names))
    return live(at=at).where(BrowserSession.user_id.in_(members))


def live_with(session_ids: Collection[UUID]) -> Sequence[BrowserSession]:
    """Return the live sessions with these ids."""
    return db.session.scalars(live().where(BrowserSession.id.in_(session_ids))).all()


def application_counts(session_ids: Collection[UUID]) -> dict[UUID, int]:
    """Return how many applications each session has signed in to, without those that ended."""
    statement = (
        select(Grant.session_id, func.count(Grant.client_id.distinct()))
        .where(Grant.session_id.in_(session_ids), Grant.ended_at.is_(None))
        .group_by(Grant.session_id)
    )
    return {session_id: count for session_id, count in db.session.execute(statement) if session_id}
