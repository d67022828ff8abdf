"""The table of domains whose agents are allowed or blocked.

An agent is a client that no operator registered: its client identifier is the URL of a metadata
document, or it has registered itself (RFC 7591).
"""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime

ALLOWED, BLOCKED = "allowed", "blocked"


class AgentDomain(Base):
    """A domain of client metadata documents, in lower case, and what operators decided about it.

    An allowed one may have a port: it stands for documents at that port alone.
    """

    __tablename__ = "agent_domains"

    domain: Mapped[str] = mapped_column(String(253), primary_key=True)
    status: Mapped[str] = mapped_column(String(10))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)

    @property
    def has_port(self) -> bool:
        return ":" in self.domain
