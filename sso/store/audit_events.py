"""Statements about audit events for admin pages; for all others see `audit.rows`."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select

from sso.extensions import db
from sso.models import AuditEvent
from sso.store.lists import Order

NEWEST = Order((AuditEvent.at, AuditEvent.id), is_descending=True)


def counts(names: Sequence[str], since: datetime, until: datetime) -> dict[str, int]:
    """How often these events happened in a span of time."""
    found = (
        select(AuditEvent.name, func.count())
        .where(AuditEvent.name.in_([str(name) for name in names]))
        .where(AuditEvent.at >= since, AuditEvent.at < until)
        .group_by(AuditEvent.name)
    )
    return {row[0]: row[1] for row in db.session.execute(found)}
