"""The used_once table: identifiers that count only once, such as the `jti` of an assertion."""

from datetime import datetime

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base, UtcDateTime


class UsedOnce(Base):
    """One identifier that was used; the row is kept as long as it could be presented again."""

    __tablename__ = "used_once"
    __table_args__ = (Index(None, "holder", "expires_at"),)

    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    holder: Mapped[str] = mapped_column(String(80))  # a client, or a key's thumbprint
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
