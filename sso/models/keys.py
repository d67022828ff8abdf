"""The tables of keys: private signing keys, encrypted, and the API tokens of programs."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid4

from sqlalchemy import CheckConstraint, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime


class KeyState(StrEnum):
    """The states of a key: published but not yet used, in use, published but no longer used."""

    NEXT = "next"
    ACTIVE = "active"
    RETIRED = "retired"


_ONE_NEXT = text("state = 'next'")
_ONE_ACTIVE = text("state = 'active'")


class SigningKey(Base):
    """A key of one algorithm; each algorithm has one next and one active key."""

    __tablename__ = "signing_keys"
    __table_args__ = (
        CheckConstraint("state IN ('next', 'active', 'retired')", name="state_is_known"),
        Index(
            "uq_signing_keys_next",
            "alg",
            unique=True,
            sqlite_where=_ONE_NEXT,
            postgresql_where=_ONE_NEXT,
        ),
        Index(
            "uq_signing_keys_active",
            "alg",
            unique=True,
            sqlite_where=_ONE_ACTIVE,
            postgresql_where=_ONE_ACTIVE,
        ),
    )

    kid: Mapped[str] = mapped_column(String(43), primary_key=True)
    alg: Mapped[str] = mapped_column(String(10))
    state: Mapped[str] = mapped_column(String(10))
    public_jwk: Mapped[str] = mapped_column(Text)
    sealed_private_jwk: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    activated_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    retired_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class ApiToken(Base):
    """An API token; only a digest of its secret is stored. `scope` is separated by spaces."""

    __tablename__ = "api_tokens"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[str] = mapped_column(String(80), unique=True)
    scope: Mapped[str] = mapped_column(String(500))
    # The administrator who created the token in the browser; NULL if a command created it. Not a
    # foreign key: the token of a deleted administrator must not look like one from a command.
    owner_id: Mapped[UUID | None] = mapped_column(index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When its owner or the administrators were told that it expires soon.
    end_announced_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Updated once a minute, not by every request.
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_address: Mapped[str | None] = mapped_column(String(45))

    @property
    def state(self) -> str:
        """Return "valid", "expired" or "revoked"."""
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at <= clock.now() else "valid"
