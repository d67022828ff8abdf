"""The tables of sign-ins through upstream identity providers."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import ForeignKey, Index, String, Text, false
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.user import BrowserSession, User


class Identity(Base):
    """An account at a provider that signs a user in. Issuer and subject alone identify it.

    `provider`: its id in the operator's file, from where it may be gone by now. `email`: what it
    said when it was linked, for people to recognize it.
    """

    __tablename__ = "identities"
    __table_args__ = (
        Index("ix_identities_subject", "issuer", "subject", unique=True),
        Index("ix_identities_checked_at", "provider", "checked_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)
    provider: Mapped[str] = mapped_column(String(32))
    issuer: Mapped[str] = mapped_column(String(500))
    subject: Mapped[str] = mapped_column(String(255))
    email: Mapped[str | None] = mapped_column(String(320))
    linked_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When a directory was last asked about the person, and since when it has barred them: then
    # the user was disabled at the same moment.
    checked_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=clock.now)
    barred_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class UpstreamSession(Base):
    """One sign-in through an identity, and what its provider has to be asked with later.

    `session_id` is NULL until the sign-in is complete. The tokens are encrypted; without the secret
    key that they were encrypted with, they are as good as absent.
    """

    __tablename__ = "upstream_sessions"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    identity_id: Mapped[UUID] = mapped_column(
        ForeignKey(Identity.id, ondelete="CASCADE"), index=True
    )
    session_id: Mapped[UUID | None] = mapped_column(
        ForeignKey(BrowserSession.id, ondelete="CASCADE"), index=True
    )
    # Of the provider's session (OIDC Back-Channel Logout §2.4).
    sid: Mapped[str | None] = mapped_column(String(255), index=True)
    amr: Mapped[str] = mapped_column(String(100))
    has_two_factors: Mapped[bool] = mapped_column(default=False, server_default=false())
    # When the person last proved themselves there, if that was before this sign-in.
    auth_time: Mapped[datetime | None] = mapped_column(UtcDateTime)
    sealed_id_token: Mapped[str | None] = mapped_column(Text)
    sealed_refresh_token: Mapped[str | None] = mapped_column(Text)
    # Kept only where there is no refresh token, and the provider has an introspection endpoint.
    sealed_access_token: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)
    # When the provider last confirmed that the person may sign in.
    checked_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)
