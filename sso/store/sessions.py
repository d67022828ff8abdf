"""Statements about browser sessions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, bindparam, select, update

from sso import clock
from sso.extensions import db
from sso.models import BrowserSession, Client, Consent, User
from sso.store import clients, prepared
from sso.store.clients import RegisteredClient
from sso.store.lists import batches


class CurrentSession(NamedTuple):
    """Who is there: a live session and its user."""

    session: BrowserSession
    user: User


@dataclass(frozen=True)
class ConsentRecord:
    """What a user allowed a client, and what was unticked."""

    scope: str
    declined: str
    updated_at: datetime


@dataclass(frozen=True)
class ResourceOwner:
    """Who is signed in, as far as a client's request needs to know (RFC 6749 §1.1); and what was
    allowed the client.
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
    consent: ConsentRecord | None


# Built once: building takes as long as running.
_LIVE = and_(BrowserSession.ended_at.is_(None), BrowserSession.expires_at > bindparam("now"))
_ENABLED = User.disabled_at.is_(None)

_FIND_LIVE = (
    select(BrowserSession, User)
    .join(User, User.id == BrowserSession.user_id)
    .where(BrowserSession.digest == bindparam("digest"), _LIVE, _ENABLED)
)
_SESSIONS, _USERS = prepared.table(BrowserSession), prepared.table(User)
_OF_SESSION = ("auth_time", "amr", "acr", "last_seen_at", "ends_at", "decisions_used_until")
_FIND_WITH_CLIENT = (
    select(
        *clients.COLUMNS,
        _SESSIONS.c.id.label("owner_session_id"),
        *(_SESSIONS.c[name].label(f"owner_{name}") for name in _OF_SESSION),
        _USERS.c.id.label("owner_user_id"),
        _USERS.c.groups.label("owner_groups"),
        _USERS.c.updated_at.label("owner_user_seen"),
        _USERS.c.claims["locale"].as_string().label("owner_locale"),
        *prepared.columns(ConsentRecord, prepared.table(Consent), "consent_"),
    )
    .select_from(Client)
    .outerjoin(BrowserSession, and_(BrowserSession.digest == bindparam("digest"), _LIVE))
    .outerjoin(User, and_(User.id == BrowserSession.user_id, _ENABLED))
    .outerjoin(Consent, and_(Consent.user_id == User.id, Consent.client_id == Client.client_id))
    .where(Client.client_id == bindparam("client_id"), Client.disabled_at.is_(None))
)


def find_live(digest: str) -> CurrentSession | None:
    """The live session with this digest, of a user who may sign in."""
    row = db.session.execute(_FIND_LIVE, {"digest": digest, "now": clock.now()}).first()
    return CurrentSession(row[0], row[1]) if row else None


def find_live_fresh(digest: str) -> CurrentSession | None:
    """As `find_live`, reading again what this transaction has read of them before."""
    fresh = _FIND_LIVE.execution_options(populate_existing=True)
    row = db.session.execute(fresh, {"digest": digest, "now": clock.now()}).first()
    return CurrentSession(row[0], row[1]) if row else None


def find_with_client(
    connection: Connection, client_id: str, digest: str
) -> tuple[RegisteredClient | None, ResourceOwner | None]:
    """In one statement: the enabled client, the live session, its user and the consent."""
    values = {"client_id": client_id, "digest": digest, "now": clock.now()}
    row = prepared.first(connection, _FIND_WITH_CLIENT, values)
    if row is None:
        return None, None
    client = clients.registered_client(row)
    if row["owner_user_id"] is None:  # a disabled user is not joined
        return client, None
    consent = prepared.record(ConsentRecord, row, "consent_") if row["consent_updated_at"] else None
    return client, prepared.record(ResourceOwner, row, "owner_", consent=consent)


def add(session: BrowserSession) -> None:
    db.session.add(session)
    db.session.flush()


_TOUCH = (
    update(_SESSIONS)
    .where(_SESSIONS.c.id == bindparam("session_id"))
    .values(last_seen_at=bindparam("seen"), expires_at=bindparam("until"))
)


def touch(connection: Connection, session_id: UUID, seen: datetime, expires_at: datetime) -> None:
    """Note that a session was used, and prolong it."""
    values = {"session_id": session_id, "seen": seen, "until": expires_at}
    prepared.changed(connection, _TOUCH, values)


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
    """Note up to when sign-ins and consents have been used; only one of several requests can."""
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
    """Lock the live sessions of users, who are locked already, before their grants end."""
    for batch in batches(user_ids):
        db.session.execute(
            select(BrowserSession.id)
            .where(BrowserSession.user_id.in_(batch), BrowserSession.ended_at.is_(None))
            .order_by(BrowserSession.id)
            .with_for_update(key_share=True)
        )


def end(*conditions: ColumnElement[bool]) -> Sequence[UUID]:
    """End the live sessions that meet the conditions, and tell which these were.

    The grants made in them are another statement's business.
    """
    now = clock.now()
    return db.session.scalars(
        update(BrowserSession)
        .where(BrowserSession.ended_at.is_(None), BrowserSession.expires_at > now, *conditions)
        .values(ended_at=now)
        .returning(BrowserSession.id)
        .execution_options(synchronize_session=False)
    ).all()


def surplus(user_id: UUID, most: int) -> Sequence[UUID]:
    """A user's live sessions beyond this number, those last used long ago."""
    return db.session.scalars(
        select(BrowserSession.id)
        .where(
            BrowserSession.user_id == user_id,
            BrowserSession.ended_at.is_(None),
            BrowserSession.expires_at > clock.now(),
        )
        .order_by(BrowserSession.last_seen_at.desc())
        .offset(most)
    ).all()


def of_user(user_id: UUID) -> Sequence[BrowserSession]:
    """A user's live sessions, the last used first."""
    return db.session.scalars(
        select(BrowserSession)
        .where(
            BrowserSession.user_id == user_id,
            BrowserSession.ended_at.is_(None),
            BrowserSession.expires_at > clock.now(),
        )
        .order_by(BrowserSession.last_seen_at.desc())
    ).all()
