"""The table of the attributes that the operator has defined; `User.attributes` has the values."""

from datetime import datetime

from sqlalchemy import JSON, String
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime


class Attribute(Base):
    """The definition of an attribute (see `flow.attributes`)."""

    __tablename__ = "attributes"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    title: Mapped[str] = mapped_column(String(200), default="")
    type: Mapped[str] = mapped_column(String(10))
    # The values of the type choice.
    choices: Mapped[list[str]] = mapped_column(JSON, default=list)
    readers: Mapped[list[str]] = mapped_column(JSON, default=list)
    writers: Mapped[list[str]] = mapped_column(JSON, default=list)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, onupdate=clock.now)
