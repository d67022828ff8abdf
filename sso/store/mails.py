"""Statements about the outbox of mails."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import delete, func, insert, select

from sso import clock
from sso.extensions import db
from sso.models import Mail
from sso.store.groups import MOST_VALUES
from sso.store.outbox import Outbox
from sso.store.statements import write

outbox = Outbox(Mail, timedelta(seconds=10))

MOST_AN_HOUR = 5  # of one kind, to one address


def is_waiting(mail_id: UUID, user_id: UUID) -> bool:
    """Whether a mail to a user is queued and no worker has begun with it."""
    waits = select(Mail.id).where(Mail.id == mail_id, Mail.user_id == user_id, Mail.attempts == 0)
    return db.session.scalar(waits) is not None


def withdraw(mail_id: UUID, user_id: UUID) -> None:
    """Take a queued mail back, unless a worker has begun with it."""
    db.session.execute(
        delete(Mail)
        .where(Mail.id == mail_id, Mail.user_id == user_id, Mail.attempts == 0)
        .execution_options(synchronize_session=False)
    )


def add_all(mails: Sequence[Mail]) -> set[UUID]:
    """Queue many mails of one kind in few statements; return the ids of those over the limit.

    Unlike `add`, it does not wait for others who request the same mail at the same time, so an
    address may get one more.
    """
    rows = [
        {"id": mail.id, "kind": mail.kind, "address": mail.address, "user_id": mail.user_id,
         "details": mail.details}
        for mail in mails
    ]  # fmt: skip
    if not rows:
        return set()
    db.session.execute(insert(Mail), rows)
    recent = (
        select(Mail.address)
        .where(Mail.kind == mails[0].kind, Mail.created_at > clock.now() - timedelta(hours=1))
        .group_by(Mail.address)
        .having(func.count() > MOST_AN_HOUR)
    )
    full = set(db.session.scalars(recent))
    surplus = [mail.id for mail in mails if mail.address in full]
    for start in range(0, len(surplus), MOST_VALUES):
        some = Mail.id.in_(surplus[start : start + MOST_VALUES])
        write(delete(Mail).where(some))
    return set(surplus)


def add(mail: Mail) -> bool:
    """Queue a mail, unless there were too many of its kind to this address within the hour."""
    # A new user is invited once, and `flask apply` may invite more than there can be locks.
    if db.engine.dialect.name == "postgresql" and mail.kind != "invite":
        # Others of this kind to this address wait until our transaction ends, and then see it.
        line = func.hashtextextended(f"{mail.kind} {mail.address}", 0)
        db.session.execute(select(func.pg_advisory_xact_lock(line)))
    db.session.add(mail)
    db.session.flush()  # SQLite lets one write at a time from here
    recent = select(func.count()).where(
        Mail.address == mail.address,
        Mail.kind == mail.kind,
        Mail.created_at > clock.now() - timedelta(hours=1),
    )
    if (db.session.scalar(recent) or 0) <= MOST_AN_HOUR:
        return True
    db.session.delete(mail)
    db.session.flush()
    return False
