"""The imported_hashes table: how the passwords that users brought along are hashed."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base, UtcDateTime


class ImportedHash(Base):
    """A method (`foreign_hashes`) that users may still have; purged when none has it."""

    __tablename__ = "imported_hashes"

    method: Mapped[str] = mapped_column(String(60), primary_key=True)
    imported_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
