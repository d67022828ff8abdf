"""Statements about the outboxes of mails and logout tokens, and about the worker's heartbeat.

`Outbox.claim` decides which worker tries an entry.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import joinedload
from sqlalchemy.sql.base import ExecutableOption

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.flow import token_claims
from sso.models import Client, Grant, Heartbeat, LogoutDelivery, Mail, User
from sso.models.outbox import OutboxEntry
from sso.store import prepared
from sso.store.lists import Order, batches, rows_with, write, write_one

LONGEST_PAUSE = timedelta(minutes=30)
GIVE_UP_AFTER = timedelta(days=1)
LEASE = timedelta(seconds=90)
Entry = TypeVar("Entry", bound=OutboxEntry)


class Outbox(Generic[Entry]):
    """The table of one kind of entry. `options` say how claimed entries are loaded.

    `lease`: after this time, other workers take over the entries of a worker that died.
    """

    def __init__(
        self,
        model: type[Entry],
        first_pause: timedelta,
        *options: ExecutableOption,
        give_up_after: timedelta = GIVE_UP_AFTER,
        lease: timedelta = LEASE,
    ) -> None:
        self.model, self.first_pause, self.options = model, first_pause, options
        self.give_up_after, self.lease = give_up_after, lease

    def claim(
        self, limit: int, until: datetime, *conditions: ColumnElement[bool]
    ) -> Sequence[Entry]:
        """Claim entries that are due: no other worker gets them before `until`."""
        model = self.model
        due = (
            select(model.id)
            .where(model.next_attempt_at <= clock.now(), *conditions)
            # New entries first: those that were refused before do not delay them.
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
        """Return when to try again after this many attempts; `None`: it is time to give up."""
        again_at = now + self.pause(attempts)
        return again_at if again_at <= created_at + self.give_up_after else None

    def pause(self, attempts: int) -> timedelta:
        """Return how long to wait after this many attempts: each pause doubles the last one."""
        factor: int = 2 ** min(attempts - 1, 20)
        return min(self.first_pause * factor, LONGEST_PAUSE)

    def mark_sent(self, entry_id: UUID, **more: Any) -> None:
        """Mark an entry as delivered."""
        now = clock.now()
        self._update(entry_id, delivered_at=now, next_attempt_at=None, last_fault=None, **more)

    def mark_failed(
        self, entry: Entry, error: str | None, is_final: bool = False, **more: Any
    ) -> datetime | None:
        """Record a failed attempt; return when to try again, or `None` if the entry is given up."""
        again_at = None
        if not is_final:
            again_at = self.next_attempt(entry.created_at, entry.attempts, clock.now())
        self._update(
            entry.id, delivered_at=None, next_attempt_at=again_at, last_fault=error, **more
        )
        return again_at

    def can_be_hurried(self, entry: Entry) -> bool:
        """Return whether an entry may be tried again now: it was given up, or waits for longer than
        a lease, so that no worker is sending it at this moment.

        One that was never tried is due, or waits for a reason.
        """
        again_at = entry.next_attempt_at
        if entry.delivered_at is not None:
            return False
        return again_at is None or (entry.attempts > 0 and again_at > clock.now() + self.lease)

    def release(self, entry_id: UUID) -> None:
        """Make a claimed entry due at once, without counting an attempt."""
        self._update(entry_id, next_attempt_at=clock.now(), attempts=self.model.attempts - 1)

    def _update(self, entry_id: UUID, **values: Any) -> None:
        db.session.execute(
            update(self.model)
            .where(self.model.id == entry_id)
            .values(**values)
            .execution_options(synchronize_session=False)
        )

    def waiting(self, *conditions: ColumnElement[bool]) -> tuple[int, datetime | None]:
        """Return how many entries are still to be delivered, and when the oldest was created."""
        count, oldest = db.session.execute(
            select(func.count(), func.min(self.model.created_at)).where(
                self.model.waits(), *conditions
            )
        ).one()
        return int(count), oldest

    def due_since(self) -> datetime | None:
        """Return the time of the earliest attempt that is due or planned."""
        return db.session.scalar(select(func.min(self.model.next_attempt_at)))


MAILS = Outbox(Mail, timedelta(seconds=10))

MOST_MAILS_AN_HOUR = 5  # of one kind, to one email address
NEWEST_MAILS = Order((Mail.created_at, Mail.id), is_descending=True)


def is_unsent() -> ColumnElement[bool]:
    """Select mails that wait or have failed, as `ix_mails_unsent` does.

    Those that had no recipient are left out: strangers requested them.
    """
    return Mail.delivered_at.is_(None) & or_(
        Mail.next_attempt_at.is_not(None), Mail.last_fault.is_not(None)
    )


def is_given_up() -> ColumnElement[bool]:
    """Select mails that are not tried again."""
    return Mail.next_attempt_at.is_(None)


def unsent_mails(email: str = "", *conditions: ColumnElement[bool]) -> Select[Mail]:
    """Select mails that wait or have failed; with an email address, those to it."""
    to_address = (Mail.address == email,) if email else ()
    return select(Mail).where(is_unsent(), *to_address, *conditions)


def newest_to(email: str, limit: int) -> Sequence[Mail]:
    """Return the newest mails to an email address; sent ones are deleted after a week."""
    return db.session.scalars(
        select(Mail)
        .where(Mail.address == email)
        .order_by(Mail.created_at.desc(), Mail.id)
        .limit(limit)
    ).all()


def has_failed_mails() -> bool:
    return db.session.scalar(unsent_mails("", is_given_up()).limit(1)) is not None


def find_all_unsent(mail_ids: Collection[UUID]) -> Sequence[Mail]:
    """Return the mails with these ids that wait or have failed."""
    return db.session.scalars(unsent_mails("", Mail.id.in_(mail_ids))).all()


def find_unsent(mail_id: UUID) -> Mail | None:
    return db.session.scalar(unsent_mails("", Mail.id == mail_id))


def lock_unsent(mail_id: UUID) -> Mail | None:
    """Lock a mail that waits or has failed until the transaction ends."""
    return dialects.lock(Mail, Mail.attempts, Mail.id == mail_id, is_unsent())


def revive_mails() -> int:
    """Make all failed mails due; return their number."""
    failed = update(Mail).where(is_unsent(), is_given_up())
    return write(failed.values(next_attempt_at=clock.now()))


def remove_mail(mail_id: UUID) -> None:
    write(delete(Mail).where(Mail.id == mail_id))


def is_mail_waiting(mail_id: UUID, user_id: UUID) -> bool:
    """Return whether a mail to a user is queued and no worker has tried to send it."""
    waits = select(Mail.id).where(Mail.id == mail_id, Mail.user_id == user_id, Mail.attempts == 0)
    return db.session.scalar(waits) is not None


def withdraw_mail(mail_id: UUID, user_id: UUID) -> None:
    """Delete a queued mail, unless a worker has tried to send it."""
    db.session.execute(
        delete(Mail)
        .where(Mail.id == mail_id, Mail.user_id == user_id, Mail.attempts == 0)
        .execution_options(synchronize_session=False)
    )


class NewMail(NamedTuple):
    """A mail to queue together with many others; see `Mail`."""

    id: UUID
    kind: str
    address: str
    user_id: UUID | None
    details: dict[str, Any]


def add_all(mails: Sequence[NewMail]) -> set[UUID]:
    """Queue many mails of one kind in a few statements; return the ids of those over the limit.

    Unlike `add_mail`, it does not wait for simultaneous requests for the same mail, so an email
    address may get one mail more.
    """
    if not mails:
        return set()
    # On the connection: the ORM takes twice as long, and others wait for the lock.
    rows = [mail._asdict() for mail in mails]
    db.session.connection().execute(insert(Mail.__table__), rows)  # type: ignore[arg-type]
    recent = (
        select(Mail.address)
        .where(Mail.kind == mails[0].kind, Mail.created_at > clock.now() - timedelta(hours=1))
        .group_by(Mail.address)
        .having(func.count() > MOST_MAILS_AN_HOUR)
    )
    full = set(db.session.scalars(recent))
    surplus = [mail.id for mail in mails if mail.address in full]
    for batch in batches(surplus):
        write(delete(Mail).where(Mail.id.in_(batch)))
    return set(surplus)


_MAILS = prepared.table(Mail)
_MANY = (
    select(_MAILS.c.id)
    .where(
        _MAILS.c.address == bindparam("to"),
        _MAILS.c.kind == bindparam("of"),
        _MAILS.c.created_at > bindparam("since"),
    )
    .limit(1)
    .offset(bindparam("most"))
)


_ALONE = select(
    func.pg_advisory_xact_lock(func.hashtextextended(bindparam("key"), 0)).label("lock")
)


def add_mail(mail: Mail) -> bool:
    """Queue a mail; return False if there were too many of its kind to this email address within
    the hour.
    """
    # A new user is invited once, and `flask apply` may invite more users than there can be locks.
    if mail.kind != "invite":
        # Other mails of this kind to this email address wait until this transaction ends.
        connection = db.session.connection()
        if dialects.is_postgresql(connection):
            prepared.first(connection, _ALONE, {"key": f"{mail.kind} {mail.address}"})
    prepared.add(mail)  # from here on, SQLite lets no other transaction write
    values = {
        "to": mail.address,
        "of": mail.kind,
        "since": clock.now() - timedelta(hours=1),
        "most": MOST_MAILS_AN_HOUR,
    }
    if prepared.first(db.session.connection(), _MANY, values) is None:
        return True
    db.session.delete(mail)
    db.session.flush()
    return False


LOGOUTS = Outbox(LogoutDelivery, timedelta(seconds=2), joinedload(LogoutDelivery.client))


def enqueue_logouts(*grants: ColumnElement[bool]) -> None:
    """Queue a logout token for every client and session among these grants.

    Clients that are disabled or have no back-channel URI get none, and no token is queued twice.
    """
    waiting = exists().where(
        LogoutDelivery.client_id == Grant.client_id,
        LogoutDelivery.sid == Grant.sid,
        LogoutDelivery.next_attempt_at.is_not(None),
    )
    sessions = db.session.execute(
        select(Client, Grant.user_id, Grant.sid)
        .join(Client, Client.client_id == Grant.client_id)
        .where(Client.disabled_at.is_(None), Grant.sid != "", ~waiting, *grants)
        .distinct()
    )
    now = clock.now()
    rows = [(c, user_id, sid) for c, user_id, sid in sessions if c.backchannel_logout_uri]
    subjects = _subjects({user_id for client, user_id, _ in rows if client.subject_attribute})
    db.session.add_all(
        LogoutDelivery(
            client_id=client.client_id,
            sub=str(user_id),
            sid=sid,
            subject=token_claims.subject(user, client.subject_attribute, client.client_id)
            if client.subject_attribute and (user := subjects.get(user_id))
            else None,
            created_at=now,
            next_attempt_at=now,
        )
        for client, user_id, sid in rows
    )
    db.session.flush()


def _subjects(user_ids: Collection[UUID]) -> dict[UUID, User]:
    """Return the users whose subjects depend on the client."""
    rows = rows_with(select(User), User.id, user_ids) if user_ids else ()
    return {user.id: user for (user,) in rows}


def logouts_waiting_for(client_id: str) -> int:
    """Return the number of logout tokens that are queued for a client."""
    return LOGOUTS.waiting(LogoutDelivery.client_id == client_id)[0]


WORKER = "worker"
ACTIVITY_FILLED = "activity filled"  # the only time that a worker did this


def beat(name: str) -> None:
    """Record that a process of this name runs at this moment."""
    now = clock.now()
    if _update_heartbeat(name, now):
        return
    try:
        db.session.execute(insert(Heartbeat).values(name=name, at=now))
    except IntegrityError:  # another process was quicker
        db.session.rollback()
        _update_heartbeat(name, now)


def last_beat(name: str) -> datetime | None:
    """Return when a process of this name last ran; `None` if never."""
    return db.session.scalar(select(Heartbeat.at).where(Heartbeat.name == name))


def _update_heartbeat(name: str, now: datetime) -> bool:
    return write_one(update(Heartbeat).where(Heartbeat.name == name).values(at=now))
