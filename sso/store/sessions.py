"""Statements about browser sessions."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, bindparam, select, update

from sso import clock
from sso.extensions import db
from sso.models import BrowserSession, Client, Consent, User


class Visit(NamedTuple):
    """Who is there: a live session, its user, and what the user allowed the client asked about."""

    session: BrowserSession
    user: User
    consent: Consent | None = None


# Built once: building takes as long as running.
_LIVE = and_(BrowserSession.ended_at.is_(None), BrowserSession.expires_at > bindparam("now"))
_ENABLED = User.disabled_at.is_(None)

_FIND_LIVE = (
    select(BrowserSession, User)
    .join(User, User.id == BrowserSession.user_id)
    .where(BrowserSession.digest == bindparam("digest"), _LIVE, _ENABLED)
)
_FIND_WITH_CLIENT = (
    select(Client, BrowserSession, User, Consent)
    .select_from(Client)
    .outerjoin(BrowserSession, and_(BrowserSession.digest == bindparam("digest"), _LIVE))
    .outerjoin(User, and_(User.id == BrowserSession.user_id, _ENABLED))
    .outerjoin(Consent, and_(Consent.user_id == User.id, Consent.client_id == Client.client_id))
    .where(Client.client_id == bindparam("client_id"), Client.disabled_at.is_(None))
)


def find_live(digest: str) -> Visit | None:
    """The live session with this digest, of a user who may sign in."""
    row = db.session.execute(_FIND_LIVE, {"digest": digest, "now": clock.now()}).first()
    return Visit(row[0], row[1]) if row else None


def find_with_client(client_id: str, digest: str) -> tuple[Client | None, Visit | None]:
    """In one statement: the client, the live session, its user and the consent."""
    values = {"client_id": client_id, "digest": digest, "now": clock.now()}
    row = db.session.execute(_FIND_WITH_CLIENT, values).first()
    if row is None:
        return None, None
    client, session, user, consent = row
    return client, Visit(session, user, consent) if session and user else None


def add(session: BrowserSession) -> None:
    db.session.add(session)
    db.session.flush()


def touch(session: BrowserSession, expires_at: datetime) -> None:
    """Note that a session was used, and prolong it."""
    session.last_seen_at = clock.now()
    session.expires_at = expires_at
    db.session.flush()


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
