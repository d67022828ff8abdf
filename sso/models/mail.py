"""The mails table: the outbox of mails."""

from typing import Any
from uuid import UUID

from sqlalchemy import JSON, String
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base
from sso.models.outbox_entry import OutboxEntry


class Mail(OutboxEntry, Base):
    """One mail that is owed to an address; its text and its link are made when it is sent.

    It is written in the transaction of its cause. A stranger's request is written whether the
    address is known or not; the worker finds out.
    """

    __tablename__ = "mails"

    kind: Mapped[str] = mapped_column(String(40))
    address: Mapped[str] = mapped_column(String(320), index=True)
    # No foreign key: it is looked up when the mail is sent, and the user may be gone by then.
    user_id: Mapped[UUID | None]
    details: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
