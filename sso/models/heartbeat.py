"""The heartbeats table: when a program that works beside requests last showed that it runs."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base, UtcDateTime


class Heartbeat(Base):
    """The last sign of life of all the processes of one name, such as `worker`."""

    __tablename__ = "heartbeats"

    name: Mapped[str] = mapped_column(String(20), primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
