"""The consents table: what a user has allowed an application."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.client import Client
from sso.models.user import User


class Consent(Base):
    """The scopes that a user allowed a client, and those that were unticked.

    `updated_at` is when it was last given.
    """

    __tablename__ = "consents"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), primary_key=True, index=True
    )
    scope: Mapped[str] = mapped_column(Text)
    declined: Mapped[str] = mapped_column(Text, default="", server_default="")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
