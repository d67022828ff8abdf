"""The tables of records: audit events, the two ends of their chain, refused requests, and what was
taken over from another server.
"""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    JSON,
    BigInteger,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    String,
    Text,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base, UtcDateTime
from sso.models.clients import MAX_CLIENT_ID, Client
from sso.models.users import User


class AuditEvent(Base):
    """A security event. It is written once; `number` and `seal` are set when it joins the chain.

    `seal` is the MAC over the event and the one before it. No foreign keys: events outlive users
    and clients.
    """

    __tablename__ = "audit_events"
    __table_args__ = (
        Index(None, "user_id", "at"),
        Index(None, "client_id", "at"),
        Index(None, "name", "at"),
        # Read every second, to append these events to the chain.
        Index(
            "ix_audit_events_unsealed",
            "at",
            "id",
            postgresql_where=text("number IS NULL"),
            sqlite_where=text("number IS NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    name: Mapped[str] = mapped_column(String(60))
    user_id: Mapped[str | None] = mapped_column(String(36))
    client_id: Mapped[str | None] = mapped_column(String(MAX_CLIENT_ID))
    address: Mapped[str | None] = mapped_column(String(45))
    browser: Mapped[str | None] = mapped_column(String(200))
    fields: Mapped[str] = mapped_column(Text, default="{}")  # JSON, as it was hashed
    number: Mapped[int | None] = mapped_column(BigInteger, unique=True)
    seal: Mapped[str | None] = mapped_column(String(64))


class AuditChain(Base):
    """The one row that holds the two ends of the chain.

    `anchor` is the last purged event, `head` the last appended one. `seal` is a MAC over both, so
    that nobody without the secret key can cut off an end.
    """

    __tablename__ = "audit_chain"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    anchor_number: Mapped[int] = mapped_column(BigInteger, default=0)
    anchor_seal: Mapped[str] = mapped_column(String(64), default="")
    head_number: Mapped[int] = mapped_column(BigInteger, default=0)
    head_seal: Mapped[str] = mapped_column(String(64), default="")
    seal: Mapped[str] = mapped_column(String(64))
    # While the chain is being changed to another secret key: the last event done, with its old and
    # its new MAC.
    resealed_number: Mapped[int | None] = mapped_column(BigInteger)
    resealed_old_seal: Mapped[str | None] = mapped_column(String(64))
    resealed_new_seal: Mapped[str | None] = mapped_column(String(64))


class Refusal(Base):
    """A refused request. Only the newest of each `bucket` are kept, and only for some days.

    `user_id` is set only if the user is the cause, for example by a missing group.
    """

    __tablename__ = "refusals"
    __table_args__ = (Index(None, "bucket", "at"), Index(None, "client_id", "at"))

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    # Not unique: the id may come from the request.
    request_id: Mapped[str] = mapped_column(String(64), index=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    bucket: Mapped[int] = mapped_column(SmallInteger)
    name: Mapped[str] = mapped_column(String(60))
    endpoint: Mapped[str | None] = mapped_column(String(40))
    client_id: Mapped[str | None] = mapped_column(ForeignKey(Client.client_id, ondelete="CASCADE"))
    user_id: Mapped[UUID | None] = mapped_column(
        ForeignKey(User.id, ondelete="CASCADE"), index=True
    )
    details: Mapped[str] = mapped_column(Text)  # JSON


class Migrated(Base):
    """A client or a user that was taken over, as it was taken.

    A second migration compares with it: what changed there since is brought, and what changed here
    is not overwritten. No foreign keys: who was deleted here does not come back.
    """

    __tablename__ = "migrated"

    kind: Mapped[str] = mapped_column(String(10), primary_key=True)  # client, user
    key: Mapped[str] = mapped_column(String(MAX_CLIENT_ID), primary_key=True)
    source: Mapped[str] = mapped_column(String(100))
    # Of a client its fields, of a user a digest of the entry, and the version of the row here.
    taken: Mapped[dict[str, Any]] = mapped_column(JSON)
    migrated_at: Mapped[datetime] = mapped_column(UtcDateTime)
