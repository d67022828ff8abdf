"""Statements of the outboxes; one of them decides which worker tries an entry."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.sql.base import ExecutableOption

from sso import clock
from sso.extensions import db
from sso.models.outbox import OutboxEntry

LONGEST_PAUSE = timedelta(minutes=30)
GIVE_UP_AFTER = timedelta(days=1)
Entry = TypeVar("Entry", bound=OutboxEntry)


class Outbox(Generic[Entry]):
    """The table of one kind of entry. `options`: what is loaded with a claimed one."""

    def __init__(
        self,
        model: type[Entry],
        first_pause: timedelta,
        *options: ExecutableOption,
        give_up_after: timedelta = GIVE_UP_AFTER,
    ) -> None:
        self.model, self.first_pause, self.options = model, first_pause, options
        self.give_up_after = give_up_after

    def claim(self, limit: int, until: datetime, *which: ColumnElement[bool]) -> Sequence[Entry]:
        """Take entries that are due; until that moment no other worker takes them."""
        model = self.model
        due = (
            select(model.id)
            .where(model.next_attempt_at <= clock.now(), *which)
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

    def next_attempt(self, created_at: datetime, attempts: int, now: datetime) -> datetime | None:
        """When to try again after so many attempts; never when it is time to give up."""
        again_at = now + self.pause(attempts)
        return again_at if again_at <= created_at + self.give_up_after else None

    def pause(self, attempts: int) -> timedelta:
        """How long to wait after so many attempts: pauses double."""
        factor: int = 2 ** min(attempts - 1, 20)
        return min(self.first_pause * factor, LONGEST_PAUSE)

    def mark_sent(self, entry_id: UUID, **more: Any) -> None:
        """Note that an entry was delivered."""
        now = clock.now()
        self._update(entry_id, delivered_at=now, next_attempt_at=None, last_fault=None, **more)

    def mark_failed(
        self, entry: Entry, error: str | None, is_final: bool = False, **more: Any
    ) -> datetime | None:
        """Note that an attempt failed; returns when to try again, or `None` if it is given up."""
        again_at = None
        if not is_final:
            again_at = self.next_attempt(entry.created_at, entry.attempts, clock.now())
        self._update(
            entry.id, delivered_at=None, next_attempt_at=again_at, last_fault=error, **more
        )
        return again_at

    def put_back(self, entry_id: UUID) -> None:
        """What was claimed and not tried: due at once, and it counts as no attempt."""
        self._update(entry_id, next_attempt_at=clock.now(), attempts=self.model.attempts - 1)

    def _update(self, entry_id: UUID, **values: Any) -> None:
        db.session.execute(
            update(self.model)
            .where(self.model.id == entry_id)
            .values(**values)
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
