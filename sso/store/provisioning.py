"""Statements about receivers of SCIM, about changes of people, and about who is there."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Select, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from sso import clock
from sso.config.urls import DOCTOR_DOMAIN
from sso.database import dialects
from sso.extensions import db
from sso.models import Client, Group, ScimChange, ScimReceiver, ScimResource, User
from sso.models.provisioning import GROUP, USER
from sso.store import groups, users
from sso.store.lists import Order, batches, write, write_one
from sso.store.outbox import Outbox

GIVE_UP_AFTER = timedelta(days=3)
outbox = Outbox(ScimResource, timedelta(seconds=5), give_up_after=GIVE_UP_AFTER)
AT_ONCE = 1000  # changes, or users of a scan
FIRST = UUID(int=0)
NEWEST = Order((ScimResource.created_at, ScimResource.id), is_descending=True)
_MOST_VALUES = 2000  # rows in an INSERT


def find(client_id: str) -> ScimReceiver | None:
    return db.session.get(ScimReceiver, client_id, populate_existing=True)


def every() -> Sequence[ScimReceiver]:
    """Return all receivers, by client ID."""
    return db.session.scalars(select(ScimReceiver).order_by(ScimReceiver.client_id)).all()


def clients() -> Sequence[Client]:
    """Return the clients that have a receiver."""
    joined = select(Client).join(ScimReceiver, ScimReceiver.client_id == Client.client_id)
    return db.session.scalars(joined.order_by(Client.client_id)).all()


def add(client_id: str) -> None:
    db.session.add(ScimReceiver(client_id=client_id, scan_after=FIRST))
    db.session.flush()


def remove(client_id: str) -> None:
    """Delete a receiver with all that is noted about people there (by foreign key)."""
    write(delete(ScimReceiver).where(ScimReceiver.client_id == client_id))


def forget_people(client_id: str) -> None:
    """Forget who is at a receiver, which has another URL from now on."""
    write(delete(ScimResource).where(ScimResource.client_id == client_id))


def change(client_id: str, **values: Any) -> bool:
    """Set columns of a receiver; return False if it is gone."""
    return write_one(
        update(ScimReceiver).where(ScimReceiver.client_id == client_id).values(**values)
    )


def replace_token(client_id: str, before: str, after: str) -> bool:
    """Store the new encryption of a token; return False if another process has changed it."""
    is_unchanged = (ScimReceiver.client_id == client_id, ScimReceiver.sealed_token == before)
    return write_one(update(ScimReceiver).where(*is_unchanged).values(sealed_token=after))


def start_scan(client_id: str) -> None:
    """Have all users and all people who are there looked at again."""
    change(client_id, scan_after=FIRST)
    _mark(ScimResource.client_id == client_id, is_leaving=ScimResource.is_leaving)


def claim(
    *, is_failing: bool, until: datetime, client_id: str | None = None
) -> list[tuple[ScimReceiver, Client]]:
    """Claim the receivers that something is due for: no other worker gets them before `until`.

    `is_failing`: those that failed at the last attempt, or the others. `client_id`: only that one.
    """
    now = clock.now()
    only = [ScimReceiver.client_id == client_id] if client_id else []
    due = select(ScimResource.client_id).where(ScimResource.next_attempt_at <= now)
    is_free = or_(ScimReceiver.claimed_until.is_(None), ScimReceiver.claimed_until <= now)
    rows = db.session.execute(
        select(ScimReceiver, Client)
        .join(Client, Client.client_id == ScimReceiver.client_id)
        .where(
            ScimReceiver.client_id.in_(due),
            ScimReceiver.failing_since.is_not(None)
            if is_failing
            else ScimReceiver.failing_since.is_(None),
            or_(ScimReceiver.retry_at.is_(None), ScimReceiver.retry_at <= now),
            is_free,
            Client.disabled_at.is_(None),
            *only,
        )
        .order_by(ScimReceiver.client_id)
        .execution_options(populate_existing=True)
    ).all()
    claimed = []
    for receiver, client in rows:
        mine = update(ScimReceiver).where(ScimReceiver.client_id == receiver.client_id, is_free)
        if write_one(mine.values(claimed_until=until)):
            claimed.append((receiver, client))
    return claimed


def is_pausing(receiver: ScimReceiver) -> bool:
    """Return whether the next attempt is to be made later."""
    return receiver.retry_at is not None and receiver.retry_at > clock.now()


def is_claimed(client_id: str, until: datetime) -> bool:
    """Return whether a receiver is still the one that was claimed until this moment."""
    is_same = (ScimReceiver.client_id == client_id, ScimReceiver.claimed_until == until)
    claimed = select(ScimReceiver.client_id).where(*is_same)
    return until > clock.now() and db.session.scalar(claimed) is not None


def release(client_id: str, until: datetime) -> None:
    """Let another worker send to a receiver that was claimed until this moment."""
    is_same = (ScimReceiver.client_id == client_id, ScimReceiver.claimed_until == until)
    write(update(ScimReceiver).where(*is_same).values(claimed_until=None))


def note_success(client_id: str) -> None:
    change(
        client_id, failing_since=None, failures=0, retry_at=None, last_fault=None,
        succeeded_at=clock.now(),
    )  # fmt: skip


def note_answer(client_id: str) -> None:
    """Record that a receiver answers, even if it refused a person."""
    failing = update(ScimReceiver).where(
        ScimReceiver.client_id == client_id, ScimReceiver.failing_since.is_not(None)
    )
    write(failing.values(failing_since=None, failures=0, retry_at=None, last_fault=None))


def note_failure(client_id: str, fault: str, pause: timedelta | None) -> None:
    """Record that a receiver did not answer as it should. `pause`: what it asked for itself."""
    now = clock.now()
    receiver = find(client_id)
    if receiver:
        failures = receiver.failures + 1
        again_at = now + max(outbox.pause(failures), pause or timedelta(0))
        since = receiver.failing_since or now
        change(
            client_id, failing_since=since, failures=failures, retry_at=again_at, last_fault=fault
        )


def due(client_id: str, limit: int) -> Sequence[ScimResource]:
    """Return what is due for a receiver: lost access first, then what never failed."""
    return db.session.scalars(
        select(ScimResource)
        .where(ScimResource.client_id == client_id, ScimResource.next_attempt_at <= clock.now())
        .order_by(
            ScimResource.is_leaving.desc(),
            ScimResource.kind,  # groups before people
            ScimResource.attempts,
            ScimResource.next_attempt_at,
            ScimResource.id,
        )
        .limit(limit)
        .execution_options(populate_existing=True)
    ).all()


def record(resource: ScimResource, **values: Any) -> bool:
    """Set columns of a resource; return False if it is gone.

    If the person has changed since `resource` was read, it stays due.
    """
    is_same = ScimResource.version == resource.version
    if "next_attempt_at" in values:
        again_at = values.pop("next_attempt_at")
        write(
            update(ScimResource)
            .where(ScimResource.id == resource.id, is_same)
            .values(next_attempt_at=again_at)
        )
    return write_one(update(ScimResource).where(ScimResource.id == resource.id).values(**values))


def keep_remote_id(resource: ScimResource, remote_id: str) -> bool:
    """Store the id that a person has there; return False if it is another person's."""
    if _has_remote_id(resource, remote_id):
        return False
    try:
        record(resource, remote_id=remote_id)
    except IntegrityError:  # another process was quicker
        db.session.rollback()
        return False
    return True


def _has_remote_id(resource: ScimResource, remote_id: str) -> bool:
    other = select(ScimResource.id).where(
        ScimResource.client_id == resource.client_id,
        ScimResource.kind == resource.kind,
        ScimResource.remote_id == remote_id,
        ScimResource.id != resource.id,
    )
    return db.session.scalar(other.limit(1)) is not None


def forget(resource: ScimResource) -> None:
    """Delete what is noted about a person who is not there, unless they have changed since."""
    is_same = (ScimResource.id == resource.id, ScimResource.version == resource.version)
    write(delete(ScimResource).where(*is_same))


def take_changes() -> list[UUID]:
    """Return the users who have changed, and delete the notes about that."""
    rows = db.session.execute(
        select(ScimChange.id, ScimChange.user_id)
        .order_by(ScimChange.id)
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True)
    ).all()
    if rows:
        write(delete(ScimChange).where(ScimChange.id.in_([row.id for row in rows])))
    return list(dict.fromkeys(row.user_id for row in rows))


def scanning() -> Sequence[ScimReceiver]:
    """Return the receivers for which not all users have been looked at."""
    return db.session.scalars(
        select(ScimReceiver)
        .where(ScimReceiver.scan_after.is_not(None))
        .order_by(ScimReceiver.client_id)
        .execution_options(populate_existing=True)
    ).all()


def is_person() -> ColumnElement[bool]:
    """Select users who are people: `flask doctor` makes users, too."""
    return ~User.email.endswith(f"@{DOCTOR_DOMAIN}", autoescape=True)


def admitted(client: Client) -> ColumnElement[bool]:
    """Select the people who may use a client and are to be there."""
    is_enabled = users.enabled() & is_person()
    if client.groups:
        return is_enabled & or_(*(groups.has_member(name) for name in client.groups))
    return is_enabled if client.scim_everyone else is_enabled & User.id.in_(())


def admitted_after(client: Client, after: UUID) -> Sequence[User]:
    """Return the next people by id who may use a client."""
    return db.session.scalars(
        select(User).where(admitted(client), User.id > after).order_by(User.id).limit(AT_ONCE)
    ).all()


def count_admitted(client: Client) -> int:
    return db.session.scalar(select(func.count()).select_from(User).where(admitted(client))) or 0


def people(ids: Collection[UUID]) -> dict[UUID, User]:
    """Return users by id as their rows are now."""
    current = select(User).where(User.id.in_(list(ids)))
    rows = db.session.scalars(current.execution_options(populate_existing=True))
    return {user.id: user for user in rows}


def mark_due(client_id: str, subjects: Mapping[UUID, str], kind: str = USER) -> None:
    """Note that these people or groups, by id with their names, are to be sent to a receiver."""
    now = clock.now()
    for batch in batches(sorted(subjects), _MOST_VALUES):
        existing = set(
            db.session.scalars(
                select(ScimResource.subject_id).where(_is(client_id, kind), _is_about(batch))
            )
        )
        new = [
            {
                "id": uuid4(), "client_id": client_id, "kind": kind, "subject_id": subject_id,
                "name": subjects[subject_id], "created_at": now, "next_attempt_at": now,
                "attempts": 0,
            }
            for subject_id in batch if subject_id not in existing
        ]  # fmt: skip
        if new:
            statement = dialects.insert(ScimResource).values(new)
            db.session.execute(
                statement.on_conflict_do_nothing(index_elements=["client_id", "kind", "subject_id"])
            )
        if existing:
            _mark(_is(client_id, kind) & _is_about(sorted(existing)), is_leaving=False)


def mark_leaving(client_id: str, subject_ids: Collection[UUID]) -> None:
    """Note that these people lose access to a receiver, if they are there."""
    for batch in batches(sorted(subject_ids), _MOST_VALUES):
        _mark(_is(client_id) & _is_about(batch), is_leaving=True)


def mark_again(client_id: str, subject_ids: Collection[UUID], kind: str = USER) -> None:
    """Have these people or groups sent again, even if nothing has changed here."""
    for batch in batches(sorted(subject_ids), _MOST_VALUES):
        _mark(_is(client_id, kind) & _is_about(batch), sent_digest=None)


def mark_resource_again(resource: ScimResource) -> None:
    """Have a person or a group sent again, even if nothing has changed here."""
    _mark(ScimResource.id == resource.id, sent_digest=None)


def mark_members(client_id: str, group: str) -> None:
    """Note that the members of a group are to be added to it at a receiver."""
    members = select(User.id).where(groups.has_member(group))
    _mark(_is(client_id) & ScimResource.subject_id.in_(members), is_leaving=False)


def mark_group_gone(client_id: str, remote_id: str) -> None:
    """Note that a group is to be created again at a receiver, which lost it."""
    is_group = _is(client_id, GROUP) & (ScimResource.remote_id == remote_id)
    _mark(is_group, remote_id=None, sent_digest=None, is_active=False)


def groups_there(client_id: str) -> dict[str, str]:
    """Return the ids that groups have at a receiver, by their names here."""
    there = (_is(client_id, GROUP), ScimResource.is_active, ScimResource.remote_id.is_not(None))
    rows = db.session.execute(
        select(Group.name, ScimResource.remote_id)
        .join(ScimResource, ScimResource.subject_id == Group.id)
        .where(*there)
    )
    return {row.name: str(row.remote_id) for row in rows}


def _is(client_id: str, kind: str = USER) -> ColumnElement[bool]:
    return (ScimResource.client_id == client_id) & (ScimResource.kind == kind)


def _is_about(subject_ids: Sequence[UUID]) -> ColumnElement[bool]:
    return ScimResource.subject_id.in_(subject_ids)


def _mark(condition: ColumnElement[bool], **values: Any) -> None:
    now = clock.now()
    write(
        update(ScimResource)
        .where(condition)
        .values(
            version=ScimResource.version + 1, next_attempt_at=now, created_at=now, attempts=0,
            **values,
        )
    )  # fmt: skip


def of_receiver(client_id: str, *conditions: ColumnElement[bool]) -> Select[ScimResource]:
    """Select the people at a receiver, to be ordered by `NEWEST`."""
    return select(ScimResource).where(ScimResource.client_id == client_id, *conditions)


def is_waiting() -> ColumnElement[bool]:
    return ScimResource.next_attempt_at.is_not(None)


def is_given_up() -> ColumnElement[bool]:
    return ScimResource.next_attempt_at.is_(None) & ScimResource.last_fault.is_not(None)


def is_there() -> ColumnElement[bool]:
    return ScimResource.is_active.is_(True)


def counts(client_id: str) -> tuple[int, int, int]:
    """Return how many people are active at a receiver, wait to be sent, and were given up."""
    row = db.session.execute(
        select(
            func.count().filter(is_there(), ScimResource.kind == USER),
            func.count().filter(is_waiting()),
            func.count().filter(is_given_up()),
        ).where(ScimResource.client_id == client_id)
    ).one()
    return row[0], row[1], row[2]


def newest(client_id: str, limit: int) -> Sequence[ScimResource]:
    """Return the people at a receiver who changed last."""
    return db.session.scalars(
        of_receiver(client_id)
        .order_by(ScimResource.created_at.desc(), ScimResource.id.desc())
        .limit(limit)
    ).all()


def resources_of(client_id: str, kind: str = USER) -> dict[UUID, ScimResource]:
    """Return all people, or all groups, at a receiver by their id here."""
    resources = of_receiver(client_id, ScimResource.kind == kind)
    rows = db.session.scalars(resources.execution_options(populate_existing=True))
    return {row.subject_id: row for row in rows}


def members_there(client_id: str, group: str) -> dict[str, UUID]:
    """Return the people who are active at a receiver and in a group here, by their id there."""
    members = select(User.id).where(groups.has_member(group))
    rows = db.session.execute(
        select(ScimResource.remote_id, ScimResource.subject_id).where(
            _is(client_id), is_there(), ScimResource.remote_id.is_not(None),
            ScimResource.subject_id.in_(members),
        )
    )  # fmt: skip
    return {str(row.remote_id): row.subject_id for row in rows}


def find_resource(resource_id: UUID) -> ScimResource | None:
    return db.session.get(ScimResource, resource_id)


def lock_resource(resource_id: UUID) -> ScimResource | None:
    """Lock a person at a receiver until the transaction ends, and return the current row."""
    return dialects.lock(ScimResource, ScimResource.attempts, ScimResource.id == resource_id)
