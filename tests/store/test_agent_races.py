"""An operator blocks a domain while a person allows an agent of it: the agent stays out."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import Client
from sso.services import agents, client_documents
from tests.support.agents import AGENT, DOCUMENT

DOMAIN = "agent.example"
A_WHILE = 0.7  # seconds; whoever does not wait for the other is done by then


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_CLIENT_DOCUMENTS="any")


def admit() -> None:
    metadata = client_documents.registered(AGENT, dict(DOCUMENT)).client_metadata
    agents.admit(audit.USER, AGENT, metadata)


def block() -> None:
    agents.block(audit.SYSTEM, DOMAIN)


def overlapping(app: Flask, first: Callable[[], None], second: Callable[[], None]) -> None:
    """Begin `second` when `first` has run, but before it is committed."""
    begun, ended = Event(), Event()

    def begin() -> None:
        with app.app_context():
            first()
            begun.set()
            ended.wait(A_WHILE)
            db.session.commit()

    def follow() -> None:
        begun.wait(10)
        try:
            with app.app_context():
                second()
                db.session.commit()
        except agents.Refused:
            pass
        finally:
            ended.set()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(begin), pool.submit(follow)]:
            future.result(20)


@pytest.mark.parametrize("order", [(admit, block), (block, admit)], ids=["admitted", "blocked"])
def test_no_agent_of_a_blocked_domain(
    app: Flask, order: tuple[Callable[[], None], Callable[[], None]]
) -> None:
    overlapping(app, *order)
    with app.app_context():
        client = db.session.get(Client, AGENT)
        assert client is None or client.disabled_at is not None
        assert agents.policy_error(db.session.connection(), DOMAIN)


def test_one_row_for_two_people(app: Flask) -> None:
    """Two people allow the same new agent at the same moment."""
    overlapping(app, admit, admit)
    with app.app_context():
        client = db.session.get(Client, AGENT)
        assert client is not None
        assert client.disabled_at is None
