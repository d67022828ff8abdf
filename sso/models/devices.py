"""The table of device authorizations (RFC 8628)."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.clients import Client
from sso.models.grants import Grant


class DeviceCode(Base):
    """A device that waits for a user; the used row stays until it is purged, so that reuse is seen.

    `scope` and `resource` are those of the request. `answered_at` without a grant is a refusal.
    """

    __tablename__ = "device_codes"

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    # Keyed: there are few codes (see `crypto.user_codes`).
    user_code_digest: Mapped[str] = mapped_column(String(80), unique=True)
    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), index=True
    )
    scope: Mapped[str | None] = mapped_column(Text)
    resource: Mapped[str | None] = mapped_column(Text)
    # The origin of the request, shown to the user.
    address: Mapped[str] = mapped_column(String(45))
    program: Mapped[str] = mapped_column(String(60))
    # Seconds between two polls; longer for a device that polls too often.
    interval: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    answered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    grant_id: Mapped[UUID | None] = mapped_column(
        ForeignKey(Grant.id, ondelete="CASCADE"), index=True
    )
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
