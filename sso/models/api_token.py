"""The api_tokens table: bearer tokens of programs that administer the server."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime


class ApiToken(Base):
    """One token; the secret itself is not stored. `scope` is a list with spaces in between."""

    __tablename__ = "api_tokens"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[str] = mapped_column(String(80), unique=True)
    scope: Mapped[str] = mapped_column(String(500))
    # The administrator who created it in the browser; null for the command line. No foreign key:
    # the token of a deleted administrator must not look like one from the command line.
    owner_id: Mapped[UUID | None] = mapped_column(index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # To the minute: not every request writes.
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_address: Mapped[str | None] = mapped_column(String(45))

    @property
    def state(self) -> str:
        """One of valid, expired, revoked."""
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at <= clock.now() else "valid"
