"""Statements about the outbox of mails; who sends one is decided here."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import func, select, update

from sso import clock
from sso.extensions import db
from sso.models import Mail

MOST_AN_HOUR = 5  # of one kind, to one address


def add(mail: Mail) -> bool:
    """Owe a mail, unless the address was owed enough of its kind within the hour."""
    recent = select(func.count()).where(
        Mail.address == mail.address,
        Mail.kind == mail.kind,
        Mail.created_at > clock.now() - timedelta(hours=1),
    )
    if (db.session.scalar(recent) or 0) >= MOST_AN_HOUR:
        return False
    db.session.add(mail)
    db.session.flush()
    return True


def claim(limit: int, until: datetime) -> Sequence[Mail]:
    """Take mails that are due; until that moment no other worker takes them."""
    due = (
        select(Mail.id)
        .where(Mail.next_attempt_at <= clock.now())
        # New ones first: those that were refused before hold up no other.
        .order_by(Mail.attempts, Mail.next_attempt_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = db.session.scalars(
        update(Mail)
        .where(Mail.id.in_(due))
        .values(next_attempt_at=until, attempts=Mail.attempts + 1)
        .returning(Mail.id)
        .execution_options(synchronize_session=False)
    ).all()
    return db.session.scalars(
        select(Mail).where(Mail.id.in_(ids)).execution_options(populate_existing=True)
    ).all()


def settle(mail_id: UUID, *, delivered: bool, again_at: datetime | None, fault: str | None) -> None:
    """Note how an attempt ended; without `again_at` there is none after it."""
    db.session.execute(
        update(Mail)
        .where(Mail.id == mail_id)
        .values(
            delivered_at=clock.now() if delivered else None,
            next_attempt_at=again_at,
            last_fault=fault,
        )
        .execution_options(synchronize_session=False)
    )


def put_back(mail_id: UUID) -> None:
    """What was claimed and not tried: due at once, and it counts as no attempt."""
    db.session.execute(
        update(Mail)
        .where(Mail.id == mail_id)
        .values(next_attempt_at=clock.now(), attempts=Mail.attempts - 1)
        .execution_options(synchronize_session=False)
    )


def waiting() -> tuple[int, datetime | None]:
    """How many are not sent yet, and since when the oldest waits."""
    count, oldest = db.session.execute(
        select(func.count(), func.min(Mail.created_at)).where(Mail.next_attempt_at.is_not(None))
    ).one()
    return int(count), oldest


def due_since() -> datetime | None:
    """Since when the mail that should have been tried first is due."""
    return db.session.scalar(select(func.min(Mail.next_attempt_at)))
