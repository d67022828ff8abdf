"""The signing_keys table: private keys, sealed."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime


class KeyState(StrEnum):
    """The life of a key: published and not yet used, in use, published and no longer used."""

    NEXT = "next"
    ACTIVE = "active"
    RETIRED = "retired"


_ONE_NEXT = text("state = 'next'")
_ONE_ACTIVE = text("state = 'active'")


class SigningKey(Base):
    """One key of one algorithm; of each algorithm one is next and one active."""

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
