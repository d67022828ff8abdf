"""Statements about grants: one approval, and the end of everything that it gave."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, exists, func, or_, select, update
from sqlalchemy.orm import contains_eager

from sso import clock
from sso.extensions import db
from sso.models import BrowserSession, Client, Consent, Grant, Token, User


def add(grant: Grant) -> None:
    db.session.add(grant)


def find_live(grant_id: UUID) -> Grant | None:
    """A grant that has not ended, with its user and client, both enabled.

    Without `offline_access` it lives as long as the browser session in which it was given.
    """
    now = clock.now()
    grant = db.session.scalar(
        select(Grant)
        .join(Grant.user)
        .join(Grant.client)
        .outerjoin(Grant.session)
        .options(
            contains_eager(Grant.user), contains_eager(Grant.client), contains_eager(Grant.session)
        )
        .where(
            Grant.id == grant_id,
            Grant.ended_at.is_(None),
            User.disabled_at.is_(None),
            Client.disabled_at.is_(None),
        )
    )
    if grant is None or grant.is_offline:
        return grant
    session: BrowserSession | None = grant.session
    alive = session is not None and session.ended_at is None and session.expires_at > now
    return grant if alive else None


_IS_OFFLINE = or_(
    Grant.scope == "offline_access",
    Grant.scope.like("offline\\_access %", escape="\\"),
    Grant.scope.like("% offline\\_access", escape="\\"),
    Grant.scope.like("% offline\\_access %", escape="\\"),
)


class Access(NamedTuple):
    """What one application has from one user: since when, and when it last got tokens."""

    client: Client
    scope: str
    since: datetime
    last_used: datetime | None


def accesses_of(user_id: UUID) -> list[Access]:
    """The applications that have something from a user: a consent, or a grant that lives."""
    given = db.session.execute(
        select(Client, Consent)
        .join(Consent, Consent.client_id == Client.client_id)
        .where(Consent.user_id == user_id)
    )
    used = db.session.execute(
        select(Client, func.min(Grant.created_at), func.max(Token.issued_at), func.max(Grant.scope))
        .join(Grant, Grant.client_id == Client.client_id)
        .outerjoin(Token, Token.grant_id == Grant.id)
        .where(Grant.user_id == user_id, Grant.ended_at.is_(None))
        .group_by(Client.client_id)
    )
    found = {
        client.client_id: Access(client, consent.scope, consent.created_at, None)
        for client, consent in given
    }
    for client, since, last_used, scope in used:
        before = found.get(client.client_id)
        found[client.client_id] = Access(
            client,
            before.scope if before else scope,
            min(before.since, since) if before else since,
            last_used,
        )
    return sorted(found.values(), key=lambda access: access.client.name.lower())


def live_at(client_id: str, limit: int) -> tuple[int, Sequence[Grant]]:
    """How many grants of a client live, and the newest of them with their users."""
    now = clock.now()
    session_lives = and_(BrowserSession.ended_at.is_(None), BrowserSession.expires_at > now)
    live = and_(
        Grant.client_id == client_id,
        Grant.ended_at.is_(None),
        or_(session_lives, _IS_OFFLINE),
        exists().where(
            Token.grant_id == Grant.id,
            or_(Token.expires_at > now, Token.refresh_expires_at > now),
        ),
    )
    joined = select(Grant).join(Grant.user).outerjoin(Grant.session).where(live)
    count = db.session.scalar(select(func.count()).select_from(joined.subquery()))
    found = db.session.scalars(
        joined.options(contains_eager(Grant.user)).order_by(Grant.created_at.desc()).limit(limit)
    ).all()
    return int(count or 0), found


def end(reason: str, *conditions: ColumnElement[bool]) -> None:
    """End the grants that meet the conditions; their codes and tokens end with them."""
    db.session.execute(
        update(Grant)
        .where(Grant.ended_at.is_(None), *conditions)
        .values(ended_at=clock.now(), end_reason=reason)
        .execution_options(synchronize_session=False)
    )


def end_one(grant_id: UUID, reason: str) -> None:
    """End one grant."""
    end(reason, Grant.id == grant_id)


def end_of_sessions(session_ids: Sequence[UUID], reason: str) -> None:
    """End the grants of browser sessions, but for those with `offline_access`."""
    end(reason, Grant.session_id.in_(session_ids), ~_IS_OFFLINE)


def end_of_user(user_id: UUID, reason: str) -> None:
    """End all grants of a user."""
    end(reason, Grant.user_id == user_id)


def end_of_user_and_client(user_id: UUID, client_id: str, reason: str) -> None:
    """End what one user gave one client."""
    end(reason, Grant.user_id == user_id, Grant.client_id == client_id)


def end_of_user_but_session(user_id: UUID, session_id: UUID, reason: str) -> None:
    """End all grants of a user but for those of one browser session."""
    other = or_(Grant.session_id.is_(None), Grant.session_id != session_id)
    end(reason, Grant.user_id == user_id, other)


def end_of_client(client_id: str, reason: str) -> None:
    """End all grants of a client."""
    end(reason, Grant.client_id == client_id)
