"""Statements about heartbeats."""

from datetime import datetime

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from sso import clock
from sso.extensions import db
from sso.models import Heartbeat
from sso.store.statements import write

WORKER = "worker"


def beat(name: str) -> None:
    """Note that a process of this name runs at this moment."""
    now = clock.now()
    if _update(name, now):
        return
    try:
        db.session.execute(insert(Heartbeat).values(name=name, at=now))
    except IntegrityError:  # another process was quicker
        db.session.rollback()
        _update(name, now)


def last(name: str) -> datetime | None:
    """When a process of this name last ran; `None` if never."""
    return db.session.scalar(select(Heartbeat.at).where(Heartbeat.name == name))


def _update(name: str, now: datetime) -> bool:
    return write(update(Heartbeat).where(Heartbeat.name == name).values(at=now)) == 1
