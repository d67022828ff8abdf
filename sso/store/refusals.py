"""Statements about refused requests, and the reasons for a refusal.

A buffer writes the requests (see `ratelimit.refusals`). The reason why a code or a token was
refused is looked up after the refusal.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from flask import Flask
from sqlalchemy import (
    ColumnElement,
    Connection,
    NullPool,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    null,
    select,
)

from sso import database
from sso.database import dialects
from sso.database.buffer import Buffer
from sso.extensions import db
from sso.flow import scopes
from sso.flow.refusals import Reason, because
from sso.i18n.message import Message
from sso.models import BrowserSession, Client, Grant, Refusal, User
from sso.models.users import has_ended
from sso.store.lists import Order

KEPT = 100  # rows of a bucket
_EXTENSION = "sso.refusals"

# A client or a user that is deleted by now must not keep the other rows from being written.
_ADD = insert(Refusal).values(
    client_id=select(Client.client_id).where(Client.client_id == bindparam("c")).scalar_subquery(),
    user_id=select(User.id).where(User.id == bindparam("u")).scalar_subquery(),
)


def open_buffer(app: Flask) -> Buffer[Refusal]:
    """Open the buffer in which this application's refusals wait to be written."""
    with app.app_context():
        engine = database.open_engine(db.engine.url, poolclass=NullPool)
    buffer = app.extensions[_EXTENSION] = Buffer(engine, add, "refusals")
    return buffer


def flush(app: Flask) -> bool:
    """Write the refusals that wait in this process; return False if the database takes none."""
    buffer: Buffer[Refusal] = app.extensions[_EXTENSION]
    return buffer.flush()


def add(connection: Connection, refusals: Sequence[Refusal]) -> None:
    """Write refusals, and delete the oldest of each bucket that has more than `KEPT`."""
    # Shorter than it takes to find a deadlock: deleting clients or users goes first.
    dialects.set_lock_timeout(connection, "500ms")
    buckets = defaultdict(list)
    for refusal in refusals:
        buckets[refusal.bucket].append(refusal)
    newest = [refusal for bucket in buckets.values() for refusal in bucket[-KEPT:]]
    connection.execute(_ADD, [_values(refusal) for refusal in newest])
    for bucket in buckets:
        of_bucket = select(Refusal.id).where(Refusal.bucket == bucket)
        oldest = of_bucket.order_by(Refusal.at.desc(), Refusal.id).offset(KEPT)
        connection.execute(
            delete(Refusal).where(Refusal.id.in_(oldest.with_for_update(skip_locked=True)))
        )


def _values(refusal: Refusal) -> dict[str, object]:
    names = ("request_id", "at", "bucket", "name", "endpoint", "details")
    values = {name: getattr(refusal, name) for name in names}
    return {"id": uuid4(), "c": refusal.client_id, "u": refusal.user_id, **values}


def find(request_id: str, *, by_beginning: bool = False, limit: int) -> Sequence[Refusal]:
    """Return the refusals of requests with this id, oldest first.

    `by_beginning`: also those of requests whose id only begins with this text.
    """
    column = Refusal.request_id
    begins = column.istartswith(request_id, autoescape=True)
    statement = select(Refusal).where(begins if by_beginning else column == request_id)
    return db.session.scalars(statement.order_by(Refusal.at, Refusal.id).limit(limit)).all()


NEWEST_FIRST = Order((Refusal.at, Refusal.id), is_descending=True)


def of(client_ids: Collection[str] | None) -> Select[Refusal]:
    """Select the refusals of these clients, or all, to be ordered by `NEWEST_FIRST`."""
    statement = select(Refusal)
    return statement if client_ids is None else statement.where(Refusal.client_id.in_(client_ids))


def newest(*, client_id: str | None, limit: int) -> Sequence[Refusal]:
    """Return the newest refusals, newest first."""
    statement = select(Refusal).order_by(Refusal.at.desc(), Refusal.id).limit(limit)
    if client_id is not None:
        statement = statement.where(Refusal.client_id == client_id)
    return db.session.scalars(statement).all()


@dataclass(frozen=True)
class RedeemedReasons:
    """A code or a refresh token that was used before."""

    grant_id: UUID
    user_id: UUID
    used_at: datetime


@dataclass(frozen=True)
class RefusalReasons:
    """The client, user, session and grant of a code or a token, and when each of them ended."""

    digest: str | None
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None
    client_id: str
    user_id: UUID
    scope: str
    ended_at: datetime | None
    end_reason: str | None
    user_disabled_at: datetime | None  # or when the account ends, which may be later
    client_disabled_at: datetime | None
    session_ended_at: datetime | None
    session_expires_at: datetime | None

    def facts(self) -> dict[str, object]:
        """Return the facts that `flask explain` adds to the reason."""
        return {
            "issued_to": self.client_id,
            "expires_at": self.expires_at,
            "used_at": self.used_at,
            "granted_scope": self.scope,
            "user": self.user_id if has_ended(self.user_disabled_at) else None,
        }

    def reason_for(self, client_id: str, now: datetime) -> Message | None:
        """Return the `reason` for a code or a refresh token that this client presents."""
        if self.client_id != client_id:
            return because(Reason.ISSUED_TO_ANOTHER)
        if reason := self.reason(now):
            return reason
        session_lives = (
            self.session_ended_at is None
            and self.session_expires_at is not None
            and self.session_expires_at > now
        )
        if session_lives or scopes.is_offline(self.scope):
            return None
        return because(Reason.SESSION_ENDED)

    def reason(self, now: datetime) -> Message | None:
        """Return why the code or token is refused; `None`: not for any of these reasons."""
        if self.used_at:
            return because(Reason.USED_BEFORE)
        if self.ended_at:
            return because(Reason.GRANT_ENDED, end_reason=str(self.end_reason))
        if self.revoked_at:
            return because(Reason.REVOKED)
        if self.expires_at is None or self.expires_at <= now:
            return because(Reason.EXPIRED)
        if has_ended(self.user_disabled_at):
            return because(Reason.USER_DISABLED)
        return because(Reason.TOKEN_OF_DISABLED_CLIENT) if self.client_disabled_at else None


def find_reasons(
    table: Table,
    condition: ColumnElement[bool],
    *,
    digest: ColumnElement[Any],
    expires_at: ColumnElement[Any],
    used_at: ColumnElement[Any] | None = None,
    revoked_at: ColumnElement[Any] | None = None,
    scope: ColumnElement[Any] = Grant.scope,  # type: ignore[assignment]  # a column, too
) -> Select[Any]:
    """Select the `RefusalReasons` of a row in a table of codes or tokens."""
    return (
        select(
            digest.label("digest"),
            expires_at.label("expires_at"),
            (null() if used_at is None else used_at).label("used_at"),
            (null() if revoked_at is None else revoked_at).label("revoked_at"),
            Grant.client_id,
            Grant.user_id,
            scope.label("scope"),
            Grant.ended_at,
            Grant.end_reason,
            func.coalesce(User.disabled_at, User.ends_at).label("user_disabled_at"),
            Client.disabled_at.label("client_disabled_at"),
            BrowserSession.ended_at.label("session_ended_at"),
            BrowserSession.expires_at.label("session_expires_at"),
        )
        .join_from(table, Grant, Grant.id == table.c.grant_id)
        .join(User, User.id == Grant.user_id)
        .join(Client, Client.client_id == Grant.client_id)
        .outerjoin(BrowserSession, BrowserSession.id == Grant.session_id)
        .where(condition)
    )


def find_redeemed(
    table: Table, digest: ColumnElement[str], used_at: ColumnElement[datetime]
) -> Select[Any]:
    """Select the `RedeemedReasons` by a digest, if the row was used and its grant belongs to this
    client and has not ended.
    """
    return (
        select(table.c.grant_id, Grant.user_id, used_at.label("used_at"))
        .join_from(table, Grant, Grant.id == table.c.grant_id)
        .where(
            digest == bindparam("digest"),
            used_at.is_not(None),
            Grant.client_id == bindparam("client"),
            Grant.ended_at.is_(None),
        )
    )
