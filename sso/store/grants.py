"""Statements about grants: what one approval gave, and the end of it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.orm import contains_eager, scoped_session

from sso import clock
from sso.extensions import db
from sso.models import BrowserSession, Client, Consent, Grant, Token
from sso.store.statements import without_time_limit

_IS_OFFLINE = (literal(" ") + Grant.scope + " ").contains(" offline_access ", autoescape=True)


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


MOST_COUNTED = 1000


def live_at(client_id: str, limit: int) -> tuple[int, Sequence[Grant]]:
    """How many grants of a client live, up to `MOST_COUNTED`, and the newest with their users."""
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
    counted = joined.limit(MOST_COUNTED).subquery()
    count = db.session.scalar(select(func.count()).select_from(counted))
    found = db.session.scalars(
        joined.options(contains_eager(Grant.user)).order_by(Grant.created_at.desc()).limit(limit)
    ).all()
    return int(count or 0), found


def end(
    on: Connection | scoped_session[Any], reason: str, *conditions: ColumnElement[bool]
) -> None:
    """End the grants that meet the conditions; their codes and tokens end with them.

    A session writes first what waits in it, so that rows are locked in the order of `add`. Grants
    are locked client by client, as by somebody who changes several.
    """
    live = and_(Grant.ended_at.is_(None), *conditions)
    in_order = select(Grant.id).where(live).order_by(Grant.client_id, Grant.id)
    on.execute(
        update(Grant)
        .where(Grant.id.in_(in_order.with_for_update(key_share=True)), Grant.ended_at.is_(None))
        .values(ended_at=clock.now(), end_reason=reason)
        .execution_options(synchronize_session=False)
    )


def end_one(on: Connection | scoped_session[Any], grant_id: UUID, reason: str) -> None:
    """End one grant."""
    end(on, reason, Grant.id == grant_id)


def end_of_sessions(session_ids: Sequence[UUID], reason: str) -> None:
    """End the grants of browser sessions, but for those with `offline_access`."""
    end(db.session, reason, Grant.session_id.in_(session_ids), ~_IS_OFFLINE)


def end_of_user(user_id: UUID, reason: str) -> None:
    """End all grants of a user."""
    end(db.session, reason, Grant.user_id == user_id)


def end_of_user_and_client(user_id: UUID, client_id: str, reason: str) -> None:
    """End what one user gave one client."""
    end(db.session, reason, Grant.user_id == user_id, Grant.client_id == client_id)


def end_of_user_but_session(user_id: UUID, session_id: UUID, reason: str) -> None:
    """End all grants of a user but for those of one browser session."""
    other = or_(Grant.session_id.is_(None), Grant.session_id != session_id)
    end(db.session, reason, Grant.user_id == user_id, other)


def end_of_client(client_id: str, reason: str) -> None:
    """End all grants of a client, maybe millions."""
    without_time_limit()
    end(db.session, reason, Grant.client_id == client_id)
