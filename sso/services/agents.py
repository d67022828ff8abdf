"""Agents: clients that no operator registered, such as assistants and editors (MCP clients).

A document at an https URL describes a client (`client_documents`), or a client registers itself
(RFC 7591). The operator decides which domains may do so; people decide at each approval. An agent
is stored when the first person is asked about it and allows it, or when it registers itself.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import agent_catalog
from sso.errors import OperatorError
from sso.extensions import db
from sso.i18n.message import Message
from sso.models import AgentDomain, Client, User
from sso.models.clients import ALLOWED, BLOCKED, DOCUMENT
from sso.services import client_documents, clients, notifications
from sso.services.checks import Invalid
from sso.store import agents, grants
from sso.store import clients as stored_clients

OFF, LISTED, ANY = "off", "listed", "any"  # SSO_CLIENT_DOCUMENTS
MOST_DOMAINS = 1000
MOST_OPEN = 10_000  # clients that registered themselves
_AUTHORITY = re.compile(rf"{client_documents.DOMAIN}(?::(?P<port>[1-9][0-9]{{0,4}}))?")


class Refused(OperatorError):
    """An agent is not admitted; `str()` says why, also to strangers."""


def policy_error(connection: Connection, authority: str) -> Message | None:
    """Return why documents identify no clients here, or `None`.

    `authority`: where they are (`client_documents.authority_of`). A blocked domain blocks all its
    ports, and the domains below it. An allowed one allows port 443 of itself alone: its owner may
    have given a subdomain, or another port, to somebody else.
    """
    policy = context.settings().client_documents
    if policy == OFF:
        return Message("client metadata documents are switched off (SSO_CLIENT_DOCUMENTS)")
    statuses = agents.statuses(connection, authority)
    if BLOCKED in statuses.values():
        return Message("the domain %(domain)s is blocked", domain=authority)
    if policy == LISTED and statuses.get(authority) != ALLOWED:
        return Message(
            "the domain %(domain)s is not among those that are allowed", domain=authority
        )
    return None


@audit.acting
def admit(actor: Actor, client_id: str, metadata: Mapping[str, Any]) -> None:
    """Store an agent that a person allows, or what has changed in its document since.

    `metadata`: what its document registers now. Raises `Refused` if its domain was blocked or the
    client disabled meanwhile.
    """
    agents.lock()
    authority = client_documents.authority_of(client_id)
    if error := policy_error(db.session.connection(), authority):
        raise Refused(error)
    client = stored_clients.lock(client_id)
    if client is None:
        client = Client(
            client_id=client_id, secret_digest="", registration=DOCUMENT, require_pkce=True
        )
        client.document_read_at = clock.now()
        client.set_client_metadata(dict(metadata))
        stored_clients.add(client)
        stored_clients.keep_origins(client)
        audit.event(Event.AGENT_ADMITTED, client=client_id)
        return
    if client.disabled_at is not None:
        raise Refused(Message("the client %(client)s is disabled", client=client.client_id))
    client.document_read_at = clock.now()
    metadata = client_documents.with_policy(metadata, client.client_metadata)
    if client.client_metadata != metadata:
        client.set_client_metadata(metadata)
        stored_clients.keep_origins(client)
        audit.event(Event.AGENT_CHANGED, client=client.client_id)
    db.session.flush()


def report_new(
    user: User, client_id: str, title: str, ip_address: str, consented_at: datetime
) -> None:
    """Tell a user by mail of an agent, if they have just allowed it for the first time.

    `title`: its verified domain, or that nothing about it is verified.
    """
    consent = grants.find_consent(user.id, client_id)
    if consent is not None and consent.created_at == consented_at:
        notifications.agent_connected(user, title, ip_address)


@audit.acting
def register_itself(actor: Actor, fields: Mapping[str, Any]) -> Client:
    """Register a client for a stranger (RFC 7591 §3): public, with PKCE. Raises `Invalid`.

    `fields`: what the stranger sent. Fields that nobody may choose for himself are left out, and an
    authentication method is replaced by none (§3.2.1).
    """
    draft = client_documents.of_stranger(fields)
    agents.lock()
    if agents.count_open() >= MOST_OPEN:
        raise Invalid([Message("too many clients have registered themselves; try again later")])
    stored_clients.add(draft)
    stored_clients.keep_origins(draft)
    audit.event(Event.AGENT_REGISTERED, client=draft.client_id)
    return draft


@audit.acting
def allow(actor: Actor, domain: str) -> str:
    """Allow the clients whose documents are at a domain; return it in lower case.

    `domain`: it, or the name of a well-known agent there (`agent_catalog`), here and below. It may
    have a port; without one, it is port 443. It counts with SSO_CLIENT_DOCUMENTS=listed. Clients
    that were disabled stay disabled. Raises `Invalid`.
    """
    return _decide(domain, ALLOWED, Event.AGENT_DOMAIN_ALLOWED)


@audit.acting
def block(actor: Actor, domain: str) -> tuple[str, list[str]]:
    """Block a domain with all ports, and those below it: their clients are disabled, tokens end.

    Return the domain, and the identifiers of the clients. Raises `Invalid`.
    """
    host, _, port = _normalized(domain).partition(":")
    if port:
        raise Invalid(
            [Message("a domain is blocked with all its ports: block %(domain)s", domain=host[:253])]
        )
    domain = _decide(domain, BLOCKED, Event.AGENT_DOMAIN_BLOCKED)
    client_ids = agents.ids_of_domain(domain)
    for client_id in client_ids:
        clients.disable(actor, client_id)
    return domain, client_ids


@audit.acting
def remove(actor: Actor, domain: str) -> str:
    """Forget what was decided about a domain. With the policy listed, its clients are disabled.

    Clients that were disabled stay disabled. Raises `LookupError`.
    """
    domain = _normalized(domain)
    agents.lock()
    row = agents.find_domain(domain)
    if row is None:
        raise LookupError(domain)
    was_allowed = row.status == ALLOWED
    agents.remove_domain(row)
    audit.event(Event.AGENT_DOMAIN_REMOVED, by=actor.by, what=domain)
    if was_allowed and context.settings().client_documents == LISTED:
        host = domain.partition(":")[0]
        for client_id in agents.ids_of_domain(host):
            authority = client_documents.authority_of(client_id)
            is_there = client_documents.domain_of(client_id) == host
            if is_there and policy_error(db.session.connection(), authority):
                clients.disable(actor, client_id)
    return domain


def _normalized(domain: str) -> str:
    """Return a domain, or that of a well-known name, as it is stored: without the default port."""
    return agent_catalog.domain_of(domain).removesuffix(":443")


def _decide(domain: str, status: str, event: Event) -> str:
    domain = _normalized(domain)
    match = _AUTHORITY.fullmatch(domain)
    if len(domain) > 253 or match is None or int(match["port"] or 1) > 65535:
        raise Invalid(
            [Message("%(domain)s is not a domain such as example.com", domain=repr(domain[:100]))]
        )
    agents.lock()
    if agents.find_domain(domain) is None and agents.count_domains() >= MOST_DOMAINS:
        raise Invalid([Message("there are %(most)d domains already", most=MOST_DOMAINS)])
    agents.set_status(domain, status)
    audit.event(event, what=domain)
    return domain


def domains() -> list[AgentDomain]:
    """Return the domains that operators decided about, by name."""
    return list(agents.domains())
