"""Statements on audit events and their chain; `writer` inserts the events."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Select,
    delete,
    func,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.exc import IntegrityError

from sso.database import dialects
from sso.extensions import db
from sso.models import AuditChain, AuditEvent

_THE_ONE = 1
_BATCH = 1000  # rows in memory at a time


def newest(*, limit: int, **conditions: Any) -> Sequence[AuditEvent]:
    """Return the newest events that meet all conditions of `matching`, newest first."""
    statement = matching(**conditions).order_by(AuditEvent.at.desc(), AuditEvent.id).limit(limit)
    return db.session.scalars(statement).all()


def newest_of(names: Sequence[str], limit: int) -> Sequence[AuditEvent]:
    """Return the newest events that have one of these names, newest first.

    Each name is looked up by itself in an index: together they would be sorted, all of them.
    """
    newest = [
        select(AuditEvent.id, AuditEvent.at)
        .where(AuditEvent.name == str(name))
        .order_by(AuditEvent.at.desc())
        .limit(limit)
        .subquery()
        for name in names
    ]
    together = union_all(*(select(part.c.id, part.c.at) for part in newest)).subquery()
    ids = select(together.c.id).order_by(together.c.at.desc()).limit(limit)
    events = select(AuditEvent).where(AuditEvent.id.in_(db.session.scalars(ids).all()))
    return db.session.scalars(events.order_by(AuditEvent.at.desc(), AuditEvent.id)).all()


def busiest_clients(name: str, since: datetime, limit: int) -> list[tuple[str, int]]:
    """Return the clients with most events of a name since a moment, and how many."""
    count = func.count()
    rows = db.session.execute(
        select(AuditEvent.client_id, count)
        .where(AuditEvent.name == name, AuditEvent.at >= since, AuditEvent.client_id.is_not(None))
        .group_by(AuditEvent.client_id)
        .order_by(count.desc(), AuditEvent.client_id)
        .limit(limit)
    )
    return [(row[0] or "", row[1]) for row in rows]


def matching(
    *,
    user_id: str | None = None,
    client_id: str | None = None,
    names: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
) -> Select[AuditEvent]:
    """Return the query for events that meet all conditions."""
    statement = select(AuditEvent)
    if user_id is not None:
        statement = statement.where(AuditEvent.user_id == user_id)
    if client_id is not None:
        statement = statement.where(AuditEvent.client_id == client_id)
    if names:
        statement = statement.where(AuditEvent.name.in_([str(name) for name in names]))
    if since is not None:
        statement = statement.where(AuditEvent.at >= since)
    if until is not None:
        statement = statement.where(AuditEvent.at < until)
    return statement


def find(event_id: UUID) -> AuditEvent | None:
    return db.session.get(AuditEvent, event_id)


def acted_by(operator: str, operator_id: UUID | None) -> ColumnElement[bool]:
    """Select the events that an operator caused. No index serves it: see `bounded`."""
    parts = [AuditEvent.fields.contains(f'"operator": {json.dumps(operator)}', autoescape=True)]
    if operator_id is not None:
        parts.append(AuditEvent.fields.contains(f'"operator_id": "{operator_id}"'))
    return or_(*parts)


def bounded(statement: Select[AuditEvent], most: int) -> tuple[Select[AuditEvent], bool]:
    """Limit a query to the newest events that it selects; return whether there are more."""
    moments = statement.with_only_columns(AuditEvent.at).order_by(AuditEvent.at.desc())
    oldest = db.session.scalar(moments.offset(most).limit(1))
    if oldest is None:
        return statement, False
    return statement.where(AuditEvent.at > oldest), True


def as_record(event: AuditEvent) -> dict[str, Any]:
    """Return an event for JSON output, without its HMAC."""
    return {
        "at": event.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "event": event.name,
        "user": event.user_id,
        "client": event.client_id,
        "address": event.address,
        "browser": event.browser,
        "fields": json.loads(event.fields),
        "number": event.number,
    }


def names() -> Sequence[str]:
    """Return the names of all recorded events."""
    return db.session.scalars(select(AuditEvent.name).distinct().order_by(AuditEvent.name)).all()


def lock_chain() -> AuditChain | None:
    """Lock and return the ends of the chain, or `None` if it has not been begun."""
    return dialects.lock(AuditChain, AuditChain.head_number, AuditChain.id == _THE_ONE)


def begin_chain(chain_mac: str) -> AuditChain | None:
    """Insert the row of an empty chain; return `None` if another process was quicker."""
    chain = AuditChain(
        id=_THE_ONE, anchor_number=0, anchor_seal="", head_number=0, head_seal="", seal=chain_mac
    )
    db.session.add(chain)
    try:
        db.session.flush()
    except IntegrityError:
        db.session.rollback()
        return None
    return chain


def has_chained() -> bool:
    return db.session.scalar(select(1).where(AuditEvent.number.is_not(None)).limit(1)) is not None


def counts(names: Sequence[str], since: datetime, until: datetime) -> dict[str, int]:
    """Return how often each of these events happened in a span of time."""
    statement = (
        select(AuditEvent.name, func.count())
        .where(AuditEvent.name.in_([str(name) for name in names]))
        .where(AuditEvent.at >= since, AuditEvent.at < until)
        .group_by(AuditEvent.name)
    )
    return {row[0]: row[1] for row in db.session.execute(statement)}


def unchained(limit: int) -> Sequence[AuditEvent]:
    """Return the oldest events that are not in the chain yet."""
    return db.session.scalars(
        select(AuditEvent)
        .where(AuditEvent.number.is_(None))
        .order_by(AuditEvent.at, AuditEvent.id)
        .limit(limit)
    ).all()


def unchained_since() -> datetime | None:
    """Return the time of the oldest event that is not in the chain yet."""
    return db.session.scalar(select(func.min(AuditEvent.at)).where(AuditEvent.number.is_(None)))


def append(chained: Sequence[tuple[UUID, int, str]]) -> None:
    """Append events to the chain; each is its id, its number and its HMAC."""
    db.session.execute(
        update(AuditEvent), [{"id": i, "number": n, "seal": text} for i, n, text in chained]
    )


def chain_of(connection: Connection) -> AuditChain | None:
    """Return the ends of the chain without a lock, through this connection."""
    row = connection.execute(select(AuditChain.__table__)).one_or_none()
    return AuditChain(**row._mapping) if row else None


def chained(connection: Connection) -> Iterator[AuditEvent]:
    """Yield all events of the chain in order, with one batch in memory at a time."""
    rows = connection.execute(
        select(AuditEvent.__table__)
        .where(AuditEvent.number.is_not(None))
        .order_by(AuditEvent.number),
        execution_options={"yield_per": _BATCH},
    )
    for row in rows:
        yield AuditEvent(**row._mapping)


def chained_from(connection: Connection, first: int, limit: int) -> list[AuditEvent]:
    """Return the next events of the chain from a number on, in order."""
    events = connection.execute(
        select(AuditEvent.__table__)
        .where(AuditEvent.number >= first)
        .order_by(AuditEvent.number)
        .limit(limit)
    )
    return [AuditEvent(**row._mapping) for row in events]


def chained_up_to(number: int) -> Sequence[AuditEvent]:
    """Return the events of the chain up to a number, in order."""
    return db.session.scalars(
        select(AuditEvent).where(AuditEvent.number <= number).order_by(AuditEvent.number)
    ).all()


def chained_between(after: int, last: int, limit: int) -> Sequence[AuditEvent]:
    """Return the next events of the chain up to the number `last`, in order."""
    return db.session.scalars(
        select(AuditEvent)
        .where(AuditEvent.number > after, AuditEvent.number <= last)
        .order_by(AuditEvent.number)
        .limit(limit)
    ).all()


def last_number() -> int:
    """Return the highest number of an event."""
    return db.session.scalar(select(func.max(AuditEvent.number))) or 0


def last_before(moment: datetime, at_most: int) -> int | None:
    """Return the number up to which all events are older than a moment, or `None`.

    Counts at most `at_most` events from the beginning of the chain.
    """
    first = db.session.scalar(select(func.min(AuditEvent.number)))
    if first is None:
        return None
    first_kept = db.session.scalar(
        select(func.min(AuditEvent.number)).where(AuditEvent.at >= moment)
    )
    statement = select(func.max(AuditEvent.number)).where(AuditEvent.number < first + at_most)
    if first_kept is not None:
        statement = statement.where(AuditEvent.number < first_kept)
    return db.session.scalar(statement)


def remove_up_to(number: int) -> int:
    """Delete the events up to a number; return how many."""
    result = db.session.execute(
        delete(AuditEvent)
        .where(AuditEvent.number <= number)
        .execution_options(synchronize_session=False)
    )
    return cast(CursorResult[Any], result).rowcount
