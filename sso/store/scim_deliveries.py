"""Statements about what was sent to SCIM services."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Select, insert, select, update

from sso import clock
from sso.extensions import db
from sso.models import ScimDelivery, ScimResource
from sso.store.lists import Order, write

NEWEST = Order((ScimDelivery.attempted_at, ScimDelivery.id), is_descending=True)


def record(
    resource: ScimResource, *, action: str | None, status: int | None, fault: str | None
) -> None:
    """Note an attempt: the first one of a change as a new row, others in the row of the first."""
    now = clock.now()
    about = (
        ScimDelivery.client_id == resource.client_id,
        ScimDelivery.subject_id == resource.subject_id,
    )
    result = {"action": action, "status": status, "fault": fault, "attempted_at": now}
    last = None
    if resource.attempts:
        newest = select(ScimDelivery.id).where(*about, ScimDelivery.kind == resource.kind)
        last = db.session.scalar(
            newest.where(ScimDelivery.action.is_(None))
            .order_by(ScimDelivery.attempted_at.desc())
            .limit(1)
        )
    if last is not None:
        same = update(ScimDelivery).where(ScimDelivery.id == last)
        write(same.values(attempts=resource.attempts + 1, name=resource.name, **result))
        return
    db.session.execute(
        insert(ScimDelivery).values(
            id=uuid4(), client_id=resource.client_id, kind=resource.kind,
            subject_id=resource.subject_id, name=resource.name, started_at=now,
            attempts=resource.attempts + 1, **result,
        )
    )  # fmt: skip


def of_receiver(
    client_id: str, text: str = "", *conditions: ColumnElement[bool]
) -> Select[ScimDelivery]:
    """Select deliveries to a receiver, to be ordered by `NEWEST`.

    `text`: a part of the name of the person or the group, or the id.
    """
    statement = select(ScimDelivery).where(ScimDelivery.client_id == client_id, *conditions)
    if not text:
        return statement
    try:
        return statement.where(ScimDelivery.subject_id == UUID(text))
    except ValueError:
        return statement.where(ScimDelivery.name.icontains(text, autoescape=True))


def is_done() -> ColumnElement[bool]:
    return ScimDelivery.action.is_not(None)


def has_failed() -> ColumnElement[bool]:
    return ScimDelivery.action.is_(None)


def newest(client_id: str, text: str, limit: int) -> Sequence[ScimDelivery]:
    """Return the last deliveries to a receiver, newest first."""
    statement = of_receiver(client_id, text)
    by_time = statement.order_by(ScimDelivery.attempted_at.desc(), ScimDelivery.id.desc())
    return db.session.scalars(by_time.limit(limit)).all()


def resources_of(deliveries: Sequence[ScimDelivery]) -> dict[tuple[str, UUID], UUID]:
    """Return the ids of what these deliveries to one receiver were about, by kind and subject, as
    far as it can be sent again.
    """
    if not deliveries:
        return {}
    rows = db.session.execute(
        select(ScimResource.kind, ScimResource.subject_id, ScimResource.id).where(
            ScimResource.client_id == deliveries[0].client_id,
            ScimResource.subject_id.in_({delivery.subject_id for delivery in deliveries}),
        )
    )
    return {(row.kind, row.subject_id): row.id for row in rows}
