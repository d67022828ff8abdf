"""The users table: people who sign in."""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, CheckConstraint, String, false
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime


class User(Base):
    """A person; `id` is the subject identifier (`sub`, OIDC Core §2) and never changes."""

    __tablename__ = "users"
    __table_args__ = (CheckConstraint("email = lower(email)", name="email_is_lower_case"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    email: Mapped[str] = mapped_column(String(320), unique=True)
    email_verified: Mapped[bool] = mapped_column(default=False, server_default=false())
    # When the user changed the email address; an operator's change leaves it alone.
    email_changed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    name: Mapped[str] = mapped_column(String(200))
    password_hash: Mapped[str | None] = mapped_column(String(200))
    claims: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    groups: Mapped[list[str]] = mapped_column(JSON, default=list)
    # Raised to forget all browsers that the person has signed in from (`device_cookie`).
    device_version: Mapped[int] = mapped_column(default=0, server_default="0")
    disabled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, onupdate=clock.now)

    def get_user_id(self) -> str:
        """What Authlib asks a resource owner for."""
        return str(self.id)
