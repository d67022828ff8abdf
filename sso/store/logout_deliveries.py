"""Statements about logout deliveries; who delivers one is decided here."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, exists, func, select, update
from sqlalchemy.orm import joinedload

from sso import clock
from sso.extensions import db
from sso.models import Client, Grant, LogoutDelivery


def owe(*grants: ColumnElement[bool]) -> None:
    """Note a logout token for every client and session among the grants that are meant.

    Clients without a back-channel address, and disabled ones, get none; nor is one owed twice
    while it waits.
    """
    waiting = exists().where(
        LogoutDelivery.client_id == Grant.client_id,
        LogoutDelivery.sid == Grant.sid,
        LogoutDelivery.next_attempt_at.is_not(None),
    )
    found = db.session.execute(
        select(Client, Grant.user_id, Grant.sid)
        .join(Client, Client.client_id == Grant.client_id)
        .where(Client.disabled_at.is_(None), ~waiting, *grants)
        .distinct()
    )
    now = clock.now()
    db.session.add_all(
        LogoutDelivery(
            client_id=client.client_id,
            sub=str(user_id),
            sid=sid,
            created_at=now,
            next_attempt_at=now,
        )
        for client, user_id, sid in found
        if client.backchannel_logout_uri
    )
    db.session.flush()


def claim(limit: int, until: datetime) -> Sequence[LogoutDelivery]:
    """Take deliveries that are due; until that moment no other worker takes them."""
    due = (
        select(LogoutDelivery.id)
        .where(LogoutDelivery.next_attempt_at <= clock.now())
        # New ones first: a client that is down with a long tail holds up no other.
        .order_by(LogoutDelivery.attempts, LogoutDelivery.next_attempt_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = db.session.scalars(
        update(LogoutDelivery)
        .where(LogoutDelivery.id.in_(due))
        .values(next_attempt_at=until, attempts=LogoutDelivery.attempts + 1)
        .returning(LogoutDelivery.id)
        .execution_options(synchronize_session=False)
    ).all()
    return db.session.scalars(
        select(LogoutDelivery)
        .options(joinedload(LogoutDelivery.client))
        .where(LogoutDelivery.id.in_(ids))
        .execution_options(populate_existing=True)
    ).all()


def settle(
    delivery_id: UUID, *, delivered: bool, again_at: datetime | None, fault: str | None
) -> None:
    """Note how an attempt ended; without `again_at` there is none after it."""
    db.session.execute(
        update(LogoutDelivery)
        .where(LogoutDelivery.id == delivery_id)
        .values(
            delivered_at=clock.now() if delivered else None,
            next_attempt_at=again_at,
            last_fault=fault,
        )
        .execution_options(synchronize_session=False)
    )


def waiting(client_id: str | None = None) -> tuple[int, datetime | None]:
    """How many are not delivered yet (to one client), and since when the oldest waits."""
    statement = select(func.count(), func.min(LogoutDelivery.created_at)).where(
        LogoutDelivery.next_attempt_at.is_not(None)
    )
    if client_id is not None:
        statement = statement.where(LogoutDelivery.client_id == client_id)
    count, oldest = db.session.execute(statement).one()
    return int(count), oldest


def due_since() -> datetime | None:
    """Since when the delivery that should have been tried first is due."""
    return db.session.scalar(select(func.min(LogoutDelivery.next_attempt_at)))
