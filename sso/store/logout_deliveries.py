"""Statements about logout deliveries."""

from datetime import timedelta

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.orm import joinedload

from sso import clock
from sso.extensions import db
from sso.models import Client, Grant, LogoutDelivery
from sso.store.outbox import Outbox

outbox = Outbox(LogoutDelivery, timedelta(seconds=2), joinedload(LogoutDelivery.client))


def enqueue(*grants: ColumnElement[bool]) -> None:
    """Queue a logout token for every client and session among these grants.

    Clients without a back-channel URI, and disabled ones, get none; nor is one queued twice.
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


def waiting_for(client_id: str) -> int:
    """How many are queued for the client."""
    return outbox.waiting(LogoutDelivery.client_id == client_id)[0]
