"""Agents and their domains: who decides, and which agents a decision reaches."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import select

from sso import audit
from sso.audit import Actor
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow.permissions import ROLES
from sso.models import Client
from sso.models.clients import ClientOrigin
from sso.services import agents, client_documents, clients
from sso.services.checks import Invalid
from tests.conftest import Clock
from tests.support.agents import DOCUMENT

HELPDESK = Actor("hal@example.com", permissions=ROLES["helpdesk"])
OF_THE_DOMAIN = ("https://agent.example/c", "https://agent.example:8443/c")
BELOW = ("https://a.agent.example/c", "https://b.a.agent.example:8443/c")
OTHERS = (
    "https://notagent.example/c", "https://agent.example.org/c",
    "https://other.example/agent.example/c", "https://agent.example.other.example:8443/c",
    "https://other.example/a.agent.example/c", "https://other.example/a.agent.example:8443",
)  # fmt: skip


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_CLIENT_DOCUMENTS="listed")


def admit(*client_ids: str) -> None:
    for client_id in client_ids:
        fields = {**DOCUMENT, "client_id": client_id, "redirect_uris": ["http://127.0.0.1/c"]}
        authority = client_documents.authority_of(client_id)
        if agents.policy_error(db.session.connection(), authority):
            agents.allow(audit.SYSTEM, authority)
        metadata = client_documents.registered(client_id, fields).client_metadata
        agents.admit(audit.USER, client_id, metadata)


def enabled(*client_ids: str) -> list[str]:
    clients = [db.session.get(Client, client_id) for client_id in client_ids]
    return [client.client_id for client in clients if client and client.disabled_at is None]


@pytest.mark.parametrize("decide", [agents.allow, agents.block, agents.remove])
def test_the_helpdesk_decides_about_no_domain(
    app: Flask, decide: Callable[[Actor, str], object]
) -> None:
    with app.app_context():
        agents.allow(audit.SYSTEM, "agent.example")
        with pytest.raises(NotAllowed):
            decide(HELPDESK, "agent.example")
        assert [row.status for row in agents.domains()] == ["allowed"]


def test_a_blocked_domain_with_its_ports_and_all_below_it(app: Flask) -> None:
    with app.app_context():
        admit(*OF_THE_DOMAIN, *BELOW, *OTHERS)
        _, ended = agents.block(audit.SYSTEM, "agent.example")
        assert ended == sorted([*OF_THE_DOMAIN, *BELOW])
        assert enabled(*OF_THE_DOMAIN, *BELOW, *OTHERS) == list(OTHERS)


def test_a_domain_that_is_no_longer_listed_alone(app: Flask) -> None:
    """Its other port, and the domains below it, were allowed by themselves."""
    with app.app_context():
        admit(*OF_THE_DOMAIN, *BELOW, *OTHERS)
        agents.remove(audit.SYSTEM, "agent.example")
        first, *kept = *OF_THE_DOMAIN, *BELOW, *OTHERS
        assert enabled(first, *kept) == kept
        agents.allow(audit.SYSTEM, "agent.example")
        clients.enable(audit.SYSTEM, first)
        agents.remove(audit.SYSTEM, "agent.example:8443")
        assert enabled(*OF_THE_DOMAIN) == [first]


def test_a_port_is_allowed_by_itself(app: Flask) -> None:
    """Port 443 belongs to the domain alone: others may have another owner."""
    with app.app_context():
        assert agents.allow(audit.SYSTEM, "Agent.Example:443") == "agent.example"
        assert _refused() == ["agent.example:8443", "a.agent.example:8443"]
        agents.allow(audit.SYSTEM, "agent.example:8443")
        assert _refused() == ["a.agent.example:8443"]
        agents.remove(audit.SYSTEM, "agent.example:443")
        assert _refused() == ["agent.example", "a.agent.example:8443"]
        agents.block(audit.SYSTEM, "agent.example")
        assert len(_refused()) == 3


def _refused() -> list[str]:
    places = ("agent.example", "agent.example:8443", "a.agent.example:8443")
    return [place for place in places if agents.policy_error(db.session.connection(), place)]


@pytest.mark.parametrize(
    "place", ["a.example:", "a.example:0", "a.example:080", "a.example:65536", "a.example:1:2",
              "a.example:x", ":8443", "a.example:8443/"],
)  # fmt: skip
def test_what_is_no_port(app: Flask, place: str) -> None:
    with app.app_context(), pytest.raises(Invalid, match="is not a domain"):
        agents.allow(audit.SYSTEM, place)


def test_a_port_is_not_blocked_alone(app: Flask) -> None:
    with app.app_context():
        with pytest.raises(Invalid, match=r"block agent\.example$"):
            agents.block(audit.SYSTEM, "agent.example:8443")
        assert agents.domains() == []
        assert agents.block(audit.SYSTEM, "agent.example:443")[0] == "agent.example"


def test_an_allowed_domain_allows_neither_those_above_nor_those_below(app: Flask) -> None:
    with app.app_context():
        agents.allow(audit.SYSTEM, "a.agent.example")
        for domain in ("agent.example", "b.a.agent.example", "aa.agent.example"):
            assert agents.policy_error(db.session.connection(), domain), domain
        agents.allow(audit.SYSTEM, "b.a.agent.example")
        agents.block(audit.SYSTEM, "agent.example")
        for domain in ("agent.example", "a.agent.example", "b.a.agent.example"):
            assert agents.policy_error(db.session.connection(), domain), domain


def test_the_last_domain_and_the_last_registration(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "MOST_DOMAINS", 2)
    monkeypatch.setattr(agents, "MOST_OPEN", 2)
    with app.app_context():
        agents.allow(audit.SYSTEM, "one.example")
        agents.allow(audit.SYSTEM, "two.example")
        with pytest.raises(Invalid):
            agents.block(audit.SYSTEM, "three.example")
        agents.block(audit.SYSTEM, "two.example")  # what is there can still be changed
        assert [row.status for row in agents.domains()] == ["allowed", "blocked"]
        fields = {"client_name": "Tool", "redirect_uris": ["http://127.0.0.1/c"]}
        for _ in range(2):
            agents.register_itself(audit.USER, fields)
        with pytest.raises(Invalid):
            agents.register_itself(audit.USER, fields)


def test_what_is_allowed_again_has_been_read_again(app: Flask, clock: Clock) -> None:
    """While its host is away it serves for a day since then."""
    client_id = OF_THE_DOMAIN[0]
    with app.app_context():
        admit(client_id)
        first = db.session.get_one(Client, client_id).document_read_at
        assert first is not None
        clock.move(hours=20)
        admit(client_id)
        again = db.session.get_one(Client, client_id).document_read_at
        assert again is not None
        assert again - first > timedelta(hours=19)


@pytest.mark.parametrize("how", ["blocked", "disabled"])
def test_what_an_operator_ended_is_not_admitted_again(app: Flask, how: str) -> None:
    """The person was asked before, and answers now."""
    client_id = OF_THE_DOMAIN[0]
    with app.app_context():
        admit(client_id)
        client = db.session.get_one(Client, client_id)
        if how == "disabled":
            clients.disable(audit.SYSTEM, client_id)
        else:
            agents.block(audit.SYSTEM, "agent.example")
            clients.enable(audit.SYSTEM, client_id)
        with pytest.raises(agents.Refused):
            agents.admit(audit.USER, client_id, client.client_metadata)


def test_a_changed_document_changes_the_origins_that_may_read_answers(app: Flask) -> None:
    client_id = OF_THE_DOMAIN[0]
    with app.app_context():
        admit(client_id)
        for uri in ("https://agent.example/c", "https://app.agent.example/c"):
            fields = {**DOCUMENT, "client_id": client_id, "redirect_uris": [uri]}
            metadata = client_documents.registered(client_id, fields).client_metadata
            agents.admit(audit.USER, client_id, metadata)
            origins = db.session.scalars(select(ClientOrigin.origin)).all()
            assert origins == [uri.removesuffix("/c")]
