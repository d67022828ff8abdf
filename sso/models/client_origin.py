"""The client_origins table: by which a preflight, which names no client, finds one."""

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base
from sso.models.client import Client


class ClientOrigin(Base):
    """A web origin of a public client's redirect URIs; of loopback, without the port."""

    __tablename__ = "client_origins"

    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), primary_key=True
    )
    origin: Mapped[str] = mapped_column(String(2000), primary_key=True, index=True)
