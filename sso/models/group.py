"""The groups table: every group that has a name, with members or without."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime


class Group(Base):
    """A group. Who is in it stands with the users (`User.groups`), who may use a client with the
    client, both by name.
    """

    __tablename__ = "groups"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    # What a provisioning client calls it (RFC 7643 §3.1).
    external_id: Mapped[str | None] = mapped_column(String(255), index=True)
    # Raised by each change of the row and of who is in the group.
    version: Mapped[int] = mapped_column(default=1, server_default="1")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
