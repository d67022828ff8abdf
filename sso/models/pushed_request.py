"""The table of pushed authorization requests (RFC 9126)."""

from datetime import datetime

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base, UtcDateTime
from sso.models.client import Client


class PushedRequest(Base):
    """The parameters that a client pushed; `digest` is that of the secret in its request URI."""

    __tablename__ = "pushed_requests"

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), index=True
    )
    # JSON as text: `state` may hold what a JSON column does not take.
    parameters: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    # Once the user has come to a page of ours; until then, an expired row is of no use.
    waits_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
