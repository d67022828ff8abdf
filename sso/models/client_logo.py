"""The client_logos table: apart from clients, whose rows are read and written all the time."""

from sqlalchemy import ForeignKey, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base
from sso.models.client import Client


class ClientLogo(Base):
    """The logo of an application, and its SHA-256 digest, by which it is served."""

    __tablename__ = "client_logos"

    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), primary_key=True
    )
    digest: Mapped[str] = mapped_column(String(64), index=True)
    media_type: Mapped[str] = mapped_column(String(20))
    data: Mapped[bytes] = mapped_column(LargeBinary)
