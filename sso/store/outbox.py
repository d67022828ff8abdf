"""Statements that the outboxes share; who tries an entry is decided here, by one statement."""

from collections.abc import Sequence
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.sql.base import ExecutableOption

from sso import clock
from sso.extensions import db
from sso.models.outbox import OutboxEntry

Entry = TypeVar("Entry", bound=OutboxEntry)


class Outbox(Generic[Entry]):
    """The table of one kind of entry. `options`: what is loaded with a claimed one."""

    def __init__(self, model: type[Entry], *options: ExecutableOption) -> None:
        self.model, self.options = model, options

    def claim(self, limit: int, until: datetime) -> Sequence[Entry]:
        """Take entries that are due; until that moment no other worker takes them."""
        model = self.model
        due = (
            select(model.id)
            .where(model.next_attempt_at <= clock.now())
            # New ones first: those that were refused before hold up no other.
            .order_by(model.attempts, model.next_attempt_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        ids = db.session.scalars(
            update(model)
            .where(model.id.in_(due))
            .values(next_attempt_at=until, attempts=model.attempts + 1)
            .returning(model.id)
            .execution_options(synchronize_session=False)
        ).all()
        return db.session.scalars(
            select(model)
            .options(*self.options)
            .where(model.id.in_(ids))
            .execution_options(populate_existing=True)
        ).all()

    def settle(
        self, entry_id: UUID, *, delivered: bool, again_at: datetime | None, fault: str | None
    ) -> None:
        """Note how an attempt ended; without `again_at` there is none after it."""
        db.session.execute(
            update(self.model)
            .where(self.model.id == entry_id)
            .values(
                delivered_at=clock.now() if delivered else None,
                next_attempt_at=again_at,
                last_fault=fault,
            )
            .execution_options(synchronize_session=False)
        )

    def put_back(self, entry_id: UUID) -> None:
        """What was claimed and not tried: due at once, and it counts as no attempt."""
        db.session.execute(
            update(self.model)
            .where(self.model.id == entry_id)
            .values(next_attempt_at=clock.now(), attempts=self.model.attempts - 1)
            .execution_options(synchronize_session=False)
        )

    def waiting(self, *which: ColumnElement[bool]) -> tuple[int, datetime | None]:
        """How many are not delivered yet, and since when the oldest waits."""
        count, oldest = db.session.execute(
            select(func.count(), func.min(self.model.created_at)).where(
                self.model.next_attempt_at.is_not(None), *which
            )
        ).one()
        return int(count), oldest

    def due_since(self) -> datetime | None:
        """Since when the entry that should have been tried first is due."""
        return db.session.scalar(select(func.min(self.model.next_attempt_at)))
