"""Statements about browser sessions."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import and_, bindparam, select, update

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


def end(session_ids: Sequence[UUID]) -> None:
    """End sessions; the grants made in them are another statement's business."""
    db.session.execute(
        update(BrowserSession)
        .where(BrowserSession.id.in_(session_ids), BrowserSession.ended_at.is_(None))
        .values(ended_at=clock.now())
    )


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
