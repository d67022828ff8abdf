"""Statements about agents: clients that no operator registered, and the domains they come from."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from sqlalchemy import Connection, false, func, or_, select, update

from sso.database import dialects
from sso.extensions import db
from sso.models import AgentDomain, Client
from sso.models.clients import DOCUMENT, OPEN
from sso.store import prepared

_LOCK = "agents"
_DOMAINS = prepared.table(AgentDomain)


def lock() -> None:
    """Wait for admissions of agents and changes of domains under way; later ones wait.

    Call it before any row is locked.
    """
    dialects.exclusive_lock(dialects.LOCK_KIND, func.hashtext(_LOCK))
    # It changes no row; on SQLite, it waits for the one writer.
    db.session.execute(update(AgentDomain).where(false()).values(status=AgentDomain.status))


def above(domain: str) -> list[str]:
    """Return a domain and those above it, without the top-level one."""
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(len(labels) - 1)]


def statuses(connection: Connection, authority: str) -> dict[str, str]:
    """Return what operators decided about a domain, its port if it has one, and those above it."""
    names = {authority, *above(authority.partition(":")[0])}
    rows = connection.execute(
        select(_DOMAINS.c.domain, _DOMAINS.c.status).where(_DOMAINS.c.domain.in_(names))
    )
    return {row.domain: row.status for row in rows}


def domains() -> Sequence[AgentDomain]:
    """Return all domains, by name."""
    return db.session.scalars(select(AgentDomain).order_by(AgentDomain.domain)).all()


def count_domains() -> int:
    """Return the number of domains."""
    return db.session.scalar(select(func.count()).select_from(AgentDomain)) or 0


def find_domain(domain: str) -> AgentDomain | None:
    """Return what operators decided about exactly this domain."""
    return db.session.get(AgentDomain, domain, populate_existing=True)


def set_status(domain: str, status: str) -> None:
    """Allow or block a domain."""
    row = find_domain(domain)
    if row is None:
        db.session.add(AgentDomain(domain=domain, status=status))
    else:
        row.status = status
    db.session.flush()


def remove_domain(domain: AgentDomain) -> None:
    """Forget what was decided about a domain."""
    db.session.delete(domain)
    db.session.flush()


def ids_of_domain(domain: str) -> list[str]:
    """Return the identifiers of the enabled clients with documents at a domain or below it."""
    host = Client.client_id.like
    statement = select(Client.client_id).where(
        Client.registration == DOCUMENT,
        Client.disabled_at.is_(None),
        or_(
            host(f"https://{_escaped(domain)}/%", escape="\\"),
            host(f"https://{_escaped(domain)}:%", escape="\\"),
            host(f"https://%.{_escaped(domain)}/%", escape="\\"),
            host(f"https://%.{_escaped(domain)}:%", escape="\\"),
        ),
    )
    # The patterns also match such a domain in the path of another one's URL.
    return sorted(
        client_id
        for client_id in db.session.scalars(statement)
        if domain in above(urlsplit(client_id).hostname or "")
    )


def _escaped(domain: str) -> str:
    return domain.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")


def count_open() -> int:
    """Return the number of clients that registered themselves."""
    statement = select(func.count()).select_from(Client).where(Client.registration == OPEN)
    return db.session.scalar(statement) or 0
