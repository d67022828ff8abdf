"""What a change of a client leaves for the worker: ending or deleting its grants, in batches.

Every request checks the client itself, so that a change takes effect at once, however many grants
there are. The first batch belongs to the transaction of the change, and most clients have no more.
The row of `client_work` remembers how far the rest is; it is committed with each batch.

Locks are taken in this order: client, work, grants. A batch locks no client.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Table, and_, delete, exists, func, or_, select, tuple_

from sso import clock, models
from sso.database import dialects
from sso.extensions import Base, db
from sso.models import Client, ClientWork, Grant, User
from sso.store import clients, grants, outbox
from sso.store.groups import has_member
from sso.store.lists import write

END, NARROW, DELETE = "end", "narrow", "delete"
_ORDER = (NARROW, END, DELETE)  # each includes those before
AT_ONCE = 500  # grants in the transaction of the change
BATCH = 1000  # grants in each of the worker's transactions


class Progress(NamedTuple):
    """How far the work is: `done` of `total` grants; `total` is `None` until they are counted."""

    kind: str
    done: int
    total: int | None


def progress(client_id: str) -> Progress | None:
    """Return how far the work for a client is; `None` if there is none. Of several, the oldest."""
    work = db.session.scalar(
        select(ClientWork)
        .where(ClientWork.client_id == client_id)
        .order_by(ClientWork.created_at, ClientWork.kind)
        .limit(1)
    )
    return Progress(work.kind, work.done, work.total) if work else None


def kinds_of(client_id: str) -> Sequence[str]:
    """Return the kinds of the work that is left for a client."""
    return db.session.scalars(
        select(ClientWork.kind).where(ClientWork.client_id == client_id)
    ).all()


def being_deleted() -> set[str]:
    """Return the ids of the clients that the worker is deleting."""
    return set(db.session.scalars(select(ClientWork.client_id).where(ClientWork.kind == DELETE)))


def begin(client_id: str, kind: str) -> bool:
    """Do the first batch; return whether nothing is left for the worker.

    The caller has locked the client. Work of the same kind that is under way begins again.
    """
    key = {"client_id": client_id, "kind": kind}
    weaker = _ORDER[: _ORDER.index(kind)]
    write(delete(ClientWork).where(ClientWork.client_id == client_id, ClientWork.kind.in_(weaker)))
    dialects.insert_or_ignore(ClientWork, [{**key, "done": 0, "created_at": clock.now()}])
    work = _lock(client_id, kind)
    assert work, "it was inserted, or was there"
    work.after = work.total = None
    is_finished = _grants_batch(work, AT_ONCE)
    if is_finished and kind != DELETE:
        db.session.delete(work)
    db.session.flush()
    return is_finished


def next_key() -> tuple[str, str] | None:
    """Return the client ID and the kind of the oldest work; `None` if there is none."""
    key = db.session.execute(
        select(ClientWork.client_id, ClientWork.kind)
        .order_by(ClientWork.created_at, ClientWork.client_id, ClientWork.kind)
        .limit(1)
    ).first()
    return (key.client_id, key.kind) if key else None


def do_batch(client_id: str, kind: str, size: int = BATCH) -> bool:
    """Do one batch of a work; return whether only the client itself is left to be deleted.

    The grants are counted first.
    """
    work = _lock(client_id, kind)
    if work is None:  # another worker finished it
        return False
    if work.total is None:
        work.total = work.done + _count(work)
    elif _grants_batch(work, size):
        if kind == DELETE:
            return not _delete_others(work, size)
        db.session.delete(work)
    db.session.flush()
    return False


def remove_client(client_id: str) -> None:
    """Delete a client of which nothing is left. It is locked before its work."""
    if client := clients.lock_to_remove(client_id):
        clients.remove(client)  # and its work, by foreign key


def _lock(client_id: str, kind: str) -> ClientWork | None:
    """Lock the work until the transaction ends: one worker at a time does it."""
    of_both = (ClientWork.client_id == client_id, ClientWork.kind == kind)
    return dialects.lock(ClientWork, ClientWork.done, *of_both)


def _count(work: ClientWork) -> int:
    dialects.without_time_limit()
    statement = select(func.count()).select_from(Grant).where(*_remaining(work))
    return db.session.scalar(statement) or 0


def _remaining(work: ClientWork) -> list[ColumnElement[bool]]:
    after = [Grant.id > work.after] if work.after else []
    return [Grant.client_id == work.client_id, *after]


def _grants_batch(work: ClientWork, size: int) -> bool:
    """Process the next grants in the order of their ids; return whether these were the last."""
    in_order = select(Grant.id).where(*_remaining(work)).order_by(Grant.id).limit(size)
    if work.kind == DELETE:
        in_order = in_order.with_for_update()
    ids: Sequence[UUID] = db.session.scalars(in_order).all()
    if ids:
        batch = and_(*_remaining(work), Grant.id <= ids[-1])
        if work.kind == END:
            grants.end(db.session, "client_disabled", batch)
        elif work.kind == NARROW:
            _end_not_admitted(work.client_id, batch)
        else:
            write(delete(Grant).where(batch))
        work.after, work.done = ids[-1], work.done + len(ids)
    return len(ids) < size


def _end_not_admitted(client_id: str, batch: ColumnElement[bool]) -> None:
    """End the grants of users who are in none of the client's groups as they are now."""
    client = clients.find(client_id)
    if client is None or not client.groups:
        return
    outside = ~or_(*(has_member(name) for name in client.groups))
    lost = and_(batch, exists().where(User.id == Grant.user_id, outside))
    outbox.enqueue_logouts(Grant.ended_at.is_(None), lost)
    grants.end(db.session, "group_lost", lost)


def _tables_of_clients() -> list[Table]:
    """Return the tables whose rows go with their client, apart from grants and the work."""
    models.load_all()
    own = {Grant.__tablename__, ClientWork.__tablename__}
    return [
        table
        for table in Base.metadata.sorted_tables
        if table.name not in own
        and any(key.column.table.name == Client.__tablename__ for key in table.foreign_keys)
    ]


def _delete_others(work: ClientWork, size: int) -> bool:
    """Delete up to `size` rows that refer to the client; return whether there may be more."""
    for table in _tables_of_clients():
        (column,) = (
            key.parent
            for key in table.foreign_keys
            if key.column.table.name == Client.__tablename__
        )
        keys: Any = tuple(table.primary_key.columns)
        some = select(*keys).where(column == work.client_id).limit(size)
        key = keys[0] if len(keys) == 1 else tuple_(*keys)
        if write(delete(table).where(key.in_(some))):
            return True
    return False
