"""The tables of provisioning outwards: receivers, changes of people, who is there as what, and what
was sent.

Triggers of the database write `scim_changes` (migration 0043), so that no statement that changes
users does it, and none is forgotten.
"""

from datetime import datetime
from typing import cast
from uuid import UUID, uuid4

from sqlalchemy import JSON, ForeignKey, Index, String, Table, Text, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.clients import MAX_CLIENT_ID, Client
from sso.models.outbox import OutboxEntry
from sso.models.users import User

USER, GROUP = "user", "group"
MAX_REMOTE_ID = 255


class ScimReceiver(Base):
    """An application that has a SCIM URL: its token, and the result of the last attempts.

    `claimed_until`: the lease of the worker that sends to it, and there is only one. `scan_after`:
    the last user whom the scan of all users has reached; NULL: it is complete.
    """

    __tablename__ = "scim_receivers"

    client_id: Mapped[str] = mapped_column(
        String(MAX_CLIENT_ID), ForeignKey(Client.client_id, ondelete="CASCADE"), primary_key=True
    )
    sealed_token: Mapped[str | None] = mapped_column(Text)
    scan_after: Mapped[UUID | None]
    claimed_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # The time of the first failure after the last success.
    failing_since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    failures: Mapped[int] = mapped_column(default=0, server_default="0")
    retry_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_fault: Mapped[str | None] = mapped_column(String(200))
    succeeded_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class ScimChange(Base):
    """A user who was created, changed or deleted, as long as no worker has taken note of it."""

    __tablename__ = "scim_changes"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[UUID]


class ScimResource(OutboxEntry, Base):
    """A person or a group at a receiver: what was sent, and whether something is still to be sent.

    There is one row for each, and it is sent as the person is at that moment: so a person who
    changes twice is sent once, and nothing is sent out of order. `version` counts the changes, so
    that one during an attempt is not lost. `created_at` is the time of the last change.
    """

    __tablename__ = "scim_resources"
    __table_args__ = (
        UniqueConstraint("client_id", "kind", "subject_id"),
        # What a receiver says about one person cannot be said about another.
        UniqueConstraint("client_id", "kind", "remote_id"),
        Index("ix_scim_resources_due", "client_id", "next_attempt_at"),
    )

    client_id: Mapped[str] = mapped_column(
        String(MAX_CLIENT_ID), ForeignKey(ScimReceiver.client_id, ondelete="CASCADE")
    )
    kind: Mapped[str] = mapped_column(String(10), default=USER, server_default=USER)
    # Not a foreign key: the user or the group may be deleted here before that is sent.
    subject_id: Mapped[UUID]
    name: Mapped[str] = mapped_column(String(320), default="", server_default="")
    remote_id: Mapped[str | None] = mapped_column(String(MAX_REMOTE_ID))
    is_active: Mapped[bool] = mapped_column(default=False, server_default=false())
    # Whether the access is lost: this is sent first.
    is_leaving: Mapped[bool] = mapped_column(default=False, server_default=false())
    sent_digest: Mapped[str | None] = mapped_column(String(64))
    version: Mapped[int] = mapped_column(default=1, server_default="1")
    # Of a person: the ids of the groups there that the person was added to.
    sent_groups: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    last_action: Mapped[str | None] = mapped_column(String(20))
    attempted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Only read together with the receiver, unlike those of other outboxes.
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)


class ScimDelivery(Base):
    """A person or a group that was sent, or could not be: one row for all tries of a change.

    `action`: what was done; NULL: nothing yet, or it was given up. `status`: of the last answer.
    """

    __tablename__ = "scim_deliveries"
    __table_args__ = (
        Index("ix_scim_deliveries_newest", "client_id", "attempted_at", "id"),
        Index("ix_scim_deliveries_subject", "client_id", "subject_id", "attempted_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    client_id: Mapped[str] = mapped_column(
        String(MAX_CLIENT_ID), ForeignKey(ScimReceiver.client_id, ondelete="CASCADE")
    )
    kind: Mapped[str] = mapped_column(String(10))
    subject_id: Mapped[UUID]
    name: Mapped[str] = mapped_column(String(320))
    # The purge has this index: one of `attempted_at` alone would be taken for the lists.
    started_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    attempted_at: Mapped[datetime] = mapped_column(UtcDateTime)
    attempts: Mapped[int] = mapped_column(default=1)
    action: Mapped[str | None] = mapped_column(String(20))
    status: Mapped[int | None]
    fault: Mapped[str | None] = mapped_column(String(200))


# A copy of a database writes users before receivers: its triggers then note nothing.
for _model in (ScimReceiver, ScimChange):
    cast(Table, _model.__table__).add_is_dependent_on(cast(Table, User.__table__))
