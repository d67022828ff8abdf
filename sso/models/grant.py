"""The grants table: one approval, and everything that it gave hangs on it."""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.client import Client
from sso.models.user import BrowserSession, User


class Grant(Base):
    """One approval of one client by one user. Ending it ends its codes and tokens."""

    __tablename__ = "grants"
    # A user's newest grants are counted whenever one is added (see `store.grants`).
    __table_args__ = (Index("ix_grants_user_id_created_at", "user_id", "created_at"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    client_id: Mapped[str] = mapped_column(
        ForeignKey("clients.client_id", ondelete="CASCADE"), index=True
    )
    # The session may be purged before a grant with offline_access ends; `sid` stays.
    session_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("browser_sessions.id", ondelete="SET NULL"), index=True
    )
    sid: Mapped[str] = mapped_column(String(36))
    scope: Mapped[str] = mapped_column(Text)
    claims: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    auth_time: Mapped[datetime] = mapped_column(UtcDateTime)
    amr: Mapped[str] = mapped_column(String(100))
    acr: Mapped[str | None] = mapped_column(String(20))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    end_reason: Mapped[str | None] = mapped_column(String(40))

    # Loaded by the statement that needs them, never behind one's back.
    user: Mapped[User] = relationship(lazy="raise")
    client: Mapped[Client] = relationship(lazy="raise")
    session: Mapped[BrowserSession | None] = relationship(lazy="raise")
