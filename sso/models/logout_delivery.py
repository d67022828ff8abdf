"""The logout_deliveries table: the outbox of logout tokens."""

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from sso.extensions import Base
from sso.models.client import Client
from sso.models.outbox import OutboxEntry


class LogoutDelivery(OutboxEntry, Base):
    """One logout token to be sent to a client (Back-Channel Logout 1.0 §2.5).

    It is written in the transaction that ended the session.
    """

    __tablename__ = "logout_deliveries"

    client_id: Mapped[str] = mapped_column(
        ForeignKey("clients.client_id", ondelete="CASCADE"), index=True
    )
    # No foreign keys: the user may be deleted by the very act that ends the session.
    sub: Mapped[str] = mapped_column(String(36))
    sid: Mapped[str] = mapped_column(String(36))

    client: Mapped[Client] = relationship(lazy="raise")
